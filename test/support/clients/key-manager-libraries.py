"""Uses Python libraries against the key manager, as the user that the environment names (OS_AUTH_URL, OS_USERNAME, ...).

The user's project must have no secrets. Every line on standard output is a finding in JSON: {"name": ..., "got": ..., "expected": ...}.
"""
import time

# Libraries that poll sleep a second between two requests; a test need not.
sleep = time.sleep
time.sleep = lambda seconds: sleep(min(seconds, 0.05))

from findings import find_unused
from key_manager_barbicanclient import delete_everything, look_at_barbicanclient
from key_manager_castellan import look_at_castellan
from key_manager_openstacksdk import look_at_openstacksdk

for look_at in (look_at_barbicanclient, look_at_castellan, look_at_openstacksdk):
    look_at()
    delete_everything()
find_unused()
