"""Debian's Barbican for a test: barbican-server.py PORT AUTH_URL [CERTIFICATE_FILE KEY_FILE].

Its configuration is found through HOME. Serves on 127.0.0.1 (port 0 chooses one) until its input ends, and prints the
port. With files, it serves HTTPS.
"""

import os
import sys
import threading

PORT, AUTH_URL, *FILES = sys.argv[1:]
# Barbican would read them as its options.
sys.argv = ["barbican"]
# Standard output is for the port.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from barbican.api import app
from barbican.api.middleware import context, microversion
from keystonemiddleware import auth_token
from paste import urlmap
from werkzeug import serving

AUTHENTICATION = {
    "auth_url": AUTH_URL,
    "auth_type": "password",
    "username": "barbican",
    "password": "barbican-pw",
    "project_name": "service",
    "user_domain_name": "Default",
    "project_domain_name": "Default",
    # Without it, tokens with access rules are refused.
    "service_type": "key-manager",
    "delay_auth_decision": False,
}


def main():
    api = microversion.MicroversionMiddleware(app.create_main_app({}))
    whole = urlmap.URLMap()
    whole["/"] = microversion.MicroversionMiddleware(app.create_version_app({}))
    whole["/v1"] = auth_token.AuthProtocol(context.ContextMiddleware(api), AUTHENTICATION)
    # In one thread: a connection to SQLite belongs to the thread that opened it.
    server = serving.make_server("127.0.0.1", int(PORT), whole, ssl_context=tuple(FILES) or None)
    print(server.server_port, file=ANSWERS, flush=True)

    def end_with_input():
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=end_with_input, daemon=True).start()
    server.serve_forever()


main()
