"""Publishes notifications as Keystone does, with the real oslo.messaging. The first argument is the URL of the message bus.

A request is one line of JSON on standard input, {"event_type": ..., "payload": ..., "settings": {"exchange": ..., "topic": ..., "driver": ...,
"rabbit": {...}}}. The answer is a line on standard output once the message bus has the notification.
"""
import json
import logging
import os
import sys

import oslo_messaging
from oslo_config import cfg



class Loud(logging.Handler):
    """Fails on errors, because a notifier only logs what it could not send."""

    def emit(self, record):
        print(self.format(record), file=sys.stderr, flush=True)
        os._exit(1)


logging.getLogger('oslo_messaging.notify').addHandler(Loud(logging.ERROR))
notifiers = {}


def notifier_of(settings):
    key = json.dumps(settings, sort_keys=True)
    if key not in notifiers:
        # Keystone does the same with its control_exchange.
        oslo_messaging.set_transport_defaults(settings['exchange'])
        conf = cfg.ConfigOpts()
        conf([], project='keystone', default_config_files=[])
        transport = oslo_messaging.get_notification_transport(conf, url=sys.argv[1])
        for name, value in settings['rabbit'].items():
            conf.set_override(name, value, group='oslo_messaging_rabbit')
        notifiers[key] = oslo_messaging.Notifier(
            transport, driver=settings['driver'], publisher_id='identity.controller', topics=[settings['topic']])
    return notifiers[key]


for line in sys.stdin:
    request = json.loads(line)
    notifier_of(request['settings']).info({}, request['event_type'], request['payload'])
    print('sent', flush=True)
