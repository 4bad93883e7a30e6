"""Runs an upstream suite with stestr. Every result is a line of JSON on standard output: {"test": ..., "status": ..., "details": ...}.

The arguments are those of `stestr run`. The working directory holds .stestr.conf.
"""
import json
import subprocess
import sys

import testtools
from subunit import ByteStreamToStreamResult


class Results(testtools.StreamResult):
    """Collects what each test attached, and writes it with the test's last status."""

    def __init__(self):
        super().__init__()
        self.attached = {}

    def status(self, test_id=None, test_status=None, file_name=None, file_bytes=None, **rest):
        if test_id is None:
            return
        if file_bytes and file_name.startswith(('traceback', 'reason')):
            self.attached[test_id] = self.attached.get(test_id, b'') + bytes(file_bytes)
        if test_status in ('success', 'skip', 'fail', 'xfail', 'uxsuccess'):
            details = self.attached.pop(test_id, b'').decode(errors='replace')
            print(json.dumps({'test': test_id, 'status': test_status, 'details': details}), flush=True)


run = subprocess.Popen(['stestr', 'run', '--subunit', *sys.argv[1:]], stdout=subprocess.PIPE)
ByteStreamToStreamResult(run.stdout, non_subunit_name='output').run(Results())
sys.exit(0 if run.wait() in (0, 1) else run.returncode)
