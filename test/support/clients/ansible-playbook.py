"""Runs the tasks of a playbook by the collection's own modules, in one process: each would otherwise import the SDK anew.

Prints a line of JSON for each task. The arguments are the playbook, and `check` for check mode."""

import contextlib
import importlib
import io
import json
import sys
import time

import yaml
from ansible.module_utils import basic

MODULES = "ansible_collections.openstack.cloud.plugins.modules."
CLOUD = "krater-admin"
# Modules that wait look every five seconds, and count those against their time limit.
LIMIT = 3600


def result_of(module, arguments, check):
    given = {"cloud": CLOUD, "timeout": LIMIT, **(arguments or {})}
    given |= {"_ansible_check_mode": check, "_ansible_remote_tmp": "/tmp"}
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        importlib.import_module(MODULES + module).main()
    return json.loads(printed.getvalue())


def main(playbook, check=None):
    with open(playbook, encoding="utf8") as text:
        tasks = yaml.safe_load(text)[0]["tasks"]
    for task in tasks:
        [(module, arguments)] = [item for item in task.items() if item[0].startswith("openstack.cloud.")]
        try:
            result = result_of(module.rpartition(".")[2], arguments, check == "check")
        except Exception as error:  # a module that crashes is a result too
            result = {"failed": True, "msg": repr(error)}
        lists = {key: len(value) for key, value in result.items() if isinstance(value, list)}
        print(
            json.dumps(
                {
                    "name": task["name"],
                    "changed": result.get("changed"),
                    "problem": str(result.get("msg", "failed")) if result.get("failed") else "",
                    "found": lists,
                }
            ),
            flush=True,
        )


sleep = time.sleep
time.sleep = lambda seconds: sleep(min(seconds, 0.2))
main(*sys.argv[1:])
