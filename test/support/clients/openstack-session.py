"""Runs many commands of the installed `openstack` client in one process, as its interactive mode does.

A request is one line of JSON on standard input, an answer one line on standard output:
  {"argv": ["loadbalancer", "list"]}          ->  {"status": 0, "stdout": "...", "stderr": "..."}
  {"describe": "openstack.load_balancer.v2"}  ->  {"loadbalancer list": [{"options": ["--name"], "choices": []}, ...]}
OS_CLOUD names the cloud: the client keeps one login per process.
"""
import io
import json
import sys
import time
import traceback
from importlib.metadata import entry_points

sys.argv[0] = 'openstack'  # the program's name in messages
from openstackclient.shell import OpenStackShell

answers, requests = sys.stdout, sys.stdin
sys.stdout, sys.stderr, sys.stdin = io.StringIO(), io.StringIO(), io.StringIO()
sys.excepthook = lambda *error: traceback.print_exception(*error, file=sys.__stderr__)

# `--wait` sleeps 3 s between two requests; a test need not.
sleep = time.sleep
time.sleep = lambda seconds: sleep(min(seconds, 0.05))


class Session(OpenStackShell):
    """The client up to the point where it would read the first command from a terminal."""

    def interact(self):
        self.interactive_mode = False


def open_shell():
    shell = Session()
    shell.run([])
    return shell


def run(shell, argv):
    """Runs one command line. Returns its exit status and output."""
    for stream in (sys.stdout, sys.stderr):
        stream.seek(0)
        stream.truncate()
    try:
        status = shell.run_subcommand(argv)
    except SystemExit as end:
        status = end.code
    except Exception as error:  # the executable does the same, and ends with 1
        print(error, file=sys.stderr)
        status = 1
    return {'status': status or 0, 'stdout': sys.stdout.getvalue(), 'stderr': sys.stderr.getvalue()}


def output_options(kind):
    """The options that cliff adds to a command, such as formats and columns, which never reach the server."""
    base = next(base for base in kind.__mro__ if base.__module__.split('.')[0] != kind.__module__.split('.')[0])

    class Plain(base):
        """The base alone."""

        def take_action(self, parsed_args):
            raise NotImplementedError

    return [action.option_strings for action in Plain(None, None).get_parser('plain')._actions]


def describe(group):
    """The options of every command of a plugin, from its own parsers."""
    commands = {}
    for entry in entry_points(group=group):
        kind = entry.load()
        foreign = output_options(kind)
        commands[entry.name.replace('_', ' ')] = [
            {
                'options': action.option_strings,
                'choices': [] if isinstance(action.choices, range) else sorted(map(str, action.choices or [])),
            }
            for action in kind(None, None).get_parser(entry.name)._actions
            if action.option_strings and action.option_strings not in foreign
        ]
    return commands


shell = None
for line in requests:
    request = json.loads(line)
    if 'describe' in request:
        answer = describe(request['describe'])
    else:
        shell = shell or open_shell()
        answer = run(shell, request['argv'])
    answers.write(json.dumps(answer) + '\n')
    answers.flush()
