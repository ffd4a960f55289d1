"""The commands, a module each. A module imports at its top only what is light; the rest when the command runs."""
