"""What rows of the report are called that are drawn too."""

RATES = "pictures a second"
FORMATS = "pictures a second, other formats"
WAYS = "a way through"
