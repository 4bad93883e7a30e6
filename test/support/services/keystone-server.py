"""Debian's Keystone for a test. Each line of standard input is a command, a list in JSON, with one line as its answer.

["manage", ...]         keystone-manage with these arguments: answers 0, or another status
["serve", port, {...}]  serves on 127.0.0.1 (port 0 chooses one), with some options overridden: answers the port
["stop"]                stops serving: answers 0

Keystone is imported once, which takes seconds, and every command runs in a fork. Everything ends with the input.
"""

import ctypes
import json
import os
import signal
import sys

from keystone.cmd import cli
from keystone.server import wsgi
from oslo_config import cfg
from werkzeug import serving

CONFIGURATION = sys.argv[1]
PR_SET_PDEATHSIG = 1


def fork(work):
    """Runs work in a process that ends with this one; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Standard output is for the answers.
    os.dup2(2, 1)
    status = 1
    try:
        work()
        status = 0
    except SystemExit as end:
        status = end.code or 0
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    finally:
        os._exit(status)


def manage(*arguments):
    def work():
        sys.argv = ["keystone-manage", "--config-file", CONFIGURATION, *arguments]
        cli.main(sys.argv)

    return os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1])


def serve(port, options):
    reader, writer = os.pipe()

    def work():
        # Keystone would read them as its options.
        sys.argv = ["keystone"]
        os.environ["OS_KEYSTONE_CONFIG_FILES"] = CONFIGURATION
        application = wsgi.initialize_public_application()
        for name, value in options.items():
            group, option = name.split(".")
            cfg.CONF.set_override(option, value, group)
        # In one thread: a connection to SQLite belongs to the thread that opened it.
        server = serving.make_server("127.0.0.1", port, application)
        os.write(writer, b"%d\n" % server.server_port)
        os.close(writer)
        server.serve_forever()

    pid = fork(work)
    os.close(writer)
    with os.fdopen(reader) as answer:
        return pid, int(answer.readline() or 0)


def main():
    serving_pid = None
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        if name == "manage":
            answer = manage(*arguments)
        elif name == "serve":
            serving_pid, answer = serve(*arguments)
        else:
            os.kill(serving_pid, signal.SIGKILL)
            os.waitpid(serving_pid, 0)
            answer = 0
        print(answer, flush=True)
    # Without the exit hooks, which are slow and print errors.
    os._exit(0)


main()
