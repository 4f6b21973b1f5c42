"""The engine's stream cut into output and messages, over a real socket without an engine."""

import socket
import struct

import pytest

from clawrl_gym.envs.sandbox.docker.transport import ContainerTransport


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    stream = ContainerTransport(ours)
    yield stream, theirs
    stream.close()
    theirs.close()


def frame(data, kind=1):
    return struct.pack(">BxxxI", kind, len(data)) + data


def receive(stream):
    """All that is there: output, messages, and whether the other end is gone."""
    output = messages = b""
    while True:
        found = stream.exchange(b"", 0)
        output, messages = output + found.output, messages + found.messages
        if found.ended or not (found.output or found.messages):
            return output, messages, found.ended


def test_messages_are_taken_out_of_the_output_wherever_it_is_cut(ends):
    stream, theirs = ends
    text = b"before" + stream.mark.encode() + b"E token 0\0after"
    wire = b"".join(frame(text[i : i + 7]) for i in range(0, len(text), 7))
    output = messages = b""
    for byte in wire:
        theirs.sendall(bytes([byte]))
        found = stream.exchange(b"", 1)
        output, messages = output + found.output, messages + found.messages
    assert (output, messages) == (b"beforeafter", b"E token 0\0")


def test_what_only_begins_like_a_mark_is_output(ends):
    stream, theirs = ends
    begun = stream.mark.encode()[:20]
    theirs.sendall(frame(b"x" + begun))
    assert receive(stream)[0] == b"x"
    theirs.sendall(frame(b"other\0"))
    assert receive(stream)[:2] == (begun + b"other\0", b"")


def test_the_mark_goes_first_and_commands_follow(ends):
    stream, theirs = ends
    sent = 0
    while not sent:
        sent = stream.exchange(b"command\n", 1).sent
    assert theirs.recv(100) == f"{stream.mark}\ncommand\n".encode()


def test_standard_error_is_kept_apart_and_bounded(ends):
    stream, theirs = ends
    theirs.sendall(frame(b"y" * 5000, kind=2) + frame(b"no such file", kind=2) + frame(b"out"))
    assert receive(stream)[0] == b"out"
    assert stream.error.endswith("no such file")
    assert len(stream.error) <= 4096


def test_the_other_ends_end_is_told_after_what_it_said(ends):
    stream, theirs = ends
    theirs.sendall(frame(b"last words"))
    theirs.close()
    assert receive(stream) == (b"last words", b"", True)
