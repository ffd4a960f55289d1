"""Logs: JSON lines that a machine reads, text that a person reads, on stderr."""

import io
import json
import logging
import re

import pytest

from interlock.serving.logs import LogSettings, configure


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _restored_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def log_to(stream, **settings):
    configure(LogSettings(**settings), stream)
    return logging.getLogger("interlock.depot")


def test_a_json_line_has_time_level_logger_message_and_the_fields():
    stream = io.StringIO()
    log_to(stream).warning("route %d refused", 3, extra={"group": "default", "key": (0, 0, 3, 0)})
    entry = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry == {
        "level": "warning",
        "logger": "interlock.depot",
        "message": "route 3 refused",
        "group": "default",
        "key": [0, 0, 3, 0],
    }


def test_the_time_is_utc():
    stream = io.StringIO()
    record = logging.makeLogRecord({"created": 1_700_000_000.9996, "levelname": "INFO"})
    log_to(stream)
    logging.getLogger().handlers[0].emit(record)
    assert json.loads(stream.getvalue())["time"] == "2023-11-14T22:13:20.999Z"


def test_a_traceback_stays_on_the_line_of_its_entry():
    stream = io.StringIO()
    log = log_to(stream)
    try:
        raise RuntimeError("derailed")
    except RuntimeError:
        log.exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["exception"].endswith("RuntimeError: derailed")


def test_a_field_that_is_no_json_is_told_as_text():
    stream = io.StringIO()
    log_to(stream).info("odd", extra={"codes": logging.INFO, "cause": ValueError("x")})
    assert json.loads(stream.getvalue())["cause"] == "x"


@pytest.mark.parametrize("format", ["json", "text"])
def test_what_callers_choose_cannot_forge_a_line_or_reach_the_terminal(format):
    stream = io.StringIO()
    log_to(stream, format=format).info("no group %s", "a\n\x1b[31mred\u2028", extra={"peer": "b\r\nc"})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_text_is_one_line_with_the_fields_last():
    stream = io.StringIO()
    log_to(stream, format="text").info("serving on %s", "127.0.0.1:50051", extra={"port": 50051})
    time, _, rest = stream.getvalue().partition(" ")
    assert time.endswith("Z")
    assert rest == "INFO    interlock.depot: serving on 127.0.0.1:50051 port=50051\n"


def test_text_has_its_traceback_below():
    stream = io.StringIO()
    log = log_to(stream, format="text")
    try:
        raise RuntimeError("derailed")
    except RuntimeError:
        log.exception("failed")
    first, *below = stream.getvalue().splitlines()
    assert first.endswith("interlock.depot: failed")
    assert below[0] == "Traceback (most recent call last):"
    assert below[-1] == "RuntimeError: derailed"


def test_auto_is_text_on_a_terminal_and_json_elsewhere():
    terminal, file = Terminal(), io.StringIO()
    log_to(terminal).info("hello")
    log_to(file).info("hello")
    assert terminal.getvalue().endswith("INFO    interlock.depot: hello\n")
    assert json.loads(file.getvalue())["message"] == "hello"


def test_the_level_hides_what_is_below_and_configuring_again_replaces():
    first, second = io.StringIO(), io.StringIO()
    log_to(first, level="warning").info("hidden")
    log_to(second, level="debug").debug("shown")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["message"] == "shown"


def test_logs_go_to_stderr(capsys):
    configure(LogSettings())
    logging.getLogger("interlock.depot").info("hello")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["message"] == "hello"
