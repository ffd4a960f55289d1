import pytest

from interlock.serving.credentials import CredentialsError, Role, read_credentials, token_sha256

SECRET = "interlock_abc"

FILE = f"""
[[token]]
id = "team-a"
sha256 = "{token_sha256(SECRET)}"
roles = ["read", "register"]
groups = ["team-a-*", "shared"]
expires = 2027-01-01T00:00:00Z

[[identity]]
name = "spiffe://cluster/ns/router"
roles = ["read"]
"""

NEW_YEAR = 1_798_761_600.0


def credentials(folder, text):
    file = folder / "credentials.toml"
    file.write_text(text)
    return read_credentials(file)


def test_a_token_is_known_by_its_hash_until_it_expires(tmp_path):
    known = credentials(tmp_path, FILE)
    caller = known.of_token(token_sha256(SECRET), NEW_YEAR - 1)
    assert (caller.id, caller.roles, caller.expires) == ("team-a", {Role.READ, Role.REGISTER}, NEW_YEAR)
    assert known.of_token(token_sha256(SECRET), NEW_YEAR) is None
    assert known.of_token(token_sha256("another"), 0) is None
    assert (known.next_expiry(0), known.next_expiry(NEW_YEAR)) == (NEW_YEAR, float("inf"))


def test_a_certificate_is_known_by_any_of_its_names(tmp_path):
    known = credentials(tmp_path, FILE)
    caller = known.of_names(["localhost", "spiffe://cluster/ns/router"], 0)
    assert (caller.id, caller.roles) == ("spiffe://cluster/ns/router", {Role.READ})
    assert known.of_names(["spiffe://cluster/ns/router/x"], 0) is None


@pytest.mark.parametrize(
    ("group", "seen"), [("team-a-1", True), ("team-a-", True), ("shared", True), ("team-b", False), ("team-a", False)]
)
def test_patterns_say_which_groups_a_caller_may_see(tmp_path, group, seen):
    caller = credentials(tmp_path, FILE).of_token(token_sha256(SECRET), 0)
    assert caller.may_see(group) is seen


def test_without_patterns_a_caller_sees_every_group(tmp_path):
    assert credentials(tmp_path, FILE).of_names(["spiffe://cluster/ns/router"], 0).may_see("any")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[token]]\nid = 'a'\n", "[[token]] number 1: sha256 must be 64 hexadecimal digits"),
        (FILE + FILE, "[[token]] number 2: the same sha256 as an earlier one"),
        (FILE.replace('"register"', '"write"'), "roles must be some of read, register, admin, preprocess"),
        (FILE.replace('["read", "register"]', "[]"), "roles must be some of"),
        (FILE.replace("team-a-*", "Team A"), "groups must be names of groups"),
        (FILE.replace("00:00:00Z", "00:00:00"), "expires must be a time with its zone"),
        (FILE.replace("expires", "expiry"), "[[token]] number 1: unknown expiry; known are"),
        ("[token]\nid = 'a'", "write each token under a line [[token]]"),
        ("[[tokens]]\nid = 'a'", "the file: unknown tokens; known are identity, token"),
        ("= 1", "no valid TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(tmp_path, text, message):
    with pytest.raises(CredentialsError) as caught:
        credentials(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/credentials.toml: ")
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CredentialsError, match="No such file"):
        read_credentials(tmp_path / "none.toml")
