"""Every method of python-barbicanclient, used as a library."""
import os
import time

from barbicanclient import client
from keystoneauth1 import session
from keystoneauth1.identity import v3

from findings import Recorded, find, look, refuse

MISSING = '00000000-0000-4000-8000-000000000000'
FAR = '2099-01-01T00:00:00'


def connect():
    auth = v3.Password(
        auth_url=os.environ['OS_AUTH_URL'],
        username=os.environ['OS_USERNAME'],
        password=os.environ['OS_PASSWORD'],
        project_name=os.environ['OS_PROJECT_NAME'],
        user_domain_name='Default',
        project_domain_name='Default',
    )
    return client.Client(session=session.Session(auth=auth))


def finished(orders, ref):
    """The order once it has ended. Certificate orders show PROCESSING before."""
    for _ in range(600):
        order = orders.get(ref)
        if order.status not in ('PENDING', 'PROCESSING'):
            return order
        time.sleep(0.05)
    raise TimeoutError(f'{ref} is never done')


def names(listed):
    return sorted(item.name for item in listed)


def look_at_barbicanclient():
    barbican = connect()
    secrets, orders, containers, cas, acls = (
        Recorded(manager)
        for manager in (barbican.secrets, barbican.orders, barbican.containers, barbican.cas, barbican.acls)
    )
    text, data = look_at_secrets(secrets)
    look_at_acls(acls, text)
    look_at_containers(containers, secrets, text, data)
    look_at_orders(orders, containers, secrets)
    (root,) = cas.list()
    look('the certificate authority', cas.get(root.ca_ref), name='Internal root CA', status='ACTIVE')
    find('total of certificate authorities', cas.total(), 1)


def delete_everything():
    barbican = connect()
    managers = (barbican.orders, barbican.containers, barbican.secrets)
    for manager in managers:
        for item in manager.list(limit=100):
            item.delete()
    find('nothing is left', [manager.total() for manager in managers], [0, 0, 0])


def look_at_secrets(secrets):
    text = secrets.create(name='text', payload='grün', expiration=FAR, secret_type='passphrase')
    ref = text.store()
    read = secrets.get(ref)
    look('a text', read, name='text', payload='grün', secret_type='passphrase', payload_content_type='text/plain')
    look('a text’s rest', read, algorithm=None, bit_length=None, mode=None, status='ACTIVE')
    find('a text’s expiration', read.expiration.isoformat(), f'{FAR}+00:00')

    data = secrets.create(name='data', payload=bytes(range(256)), algorithm='aes', bit_length=2048, mode='cbc')
    data.store()
    read = secrets.get(data.secret_ref)
    look('bytes', read, payload=bytes(range(256)), payload_content_type='application/octet-stream', bit_length=2048)

    late = secrets.create(name='late')
    late.store()
    look('no payload yet', secrets.get(late.secret_ref), payload=None, content_types=None)
    secrets.update(late.secret_ref, b'\x00\xff')
    look('a payload in a second step', secrets.get(late.secret_ref), payload=b'\x00\xff')
    refuse('a second payload', 'HTTPClientError: Conflict', secrets.update, late.secret_ref, 'again')
    later = secrets.create(name='later')
    later.store()
    later.payload = 'words'
    later.update()
    look('a text in a second step', secrets.get(later.secret_ref), payload='words')

    nameless = secrets.create(payload='x')
    nameless.store()
    look('a secret without a name', secrets.get(nameless.secret_ref), name=None, payload='x')
    nameless.delete()

    find('list', names(secrets.list()), ['data', 'late', 'later', 'text'])
    find('total of secrets', secrets.total(), 4)
    find('sorted', [item.name for item in secrets.list(sort='name:desc')], ['text', 'later', 'late', 'data'])
    find('paged', [item.name for item in secrets.list(limit=2, offset=1, sort='name')], ['late', 'later'])
    find('by bits', names(secrets.list(bits=2048, algorithm='aes', mode='cbc')), ['data'])
    find('by expiration', names(secrets.list(expiration=f'gte:{FAR}')), ['text'])
    created = secrets.get(ref).created.isoformat()
    find('by time of creation', names(secrets.list(created=f'gt:{created}')), ['data', 'late', 'later'])
    find('by time of change', names(secrets.list(updated=f'lte:{created}')), ['text'])
    find('by type and name', names(secrets.list(secret_type='opaque', name='late')), ['late'])
    refuse('sorting by nothing', 'HTTPClientError: Bad Request', secrets.list, sort='colour')
    refuse('a time that is none', 'HTTPClientError: Bad Request', secrets.list, created='soon')

    secrets.delete(later.secret_ref)
    refuse('a deleted secret', 'HTTPClientError: Not Found', lambda: secrets.get(later.secret_ref).status)
    refuse('deletion of a deleted secret', 'HTTPClientError: Not Found', secrets.delete, later.secret_ref)
    refuse('no reference', 'ValueError: ', secrets.get, 'nonsense')
    return text, data


def look_at_acls(acls, secret):
    ref = secret.secret_ref
    look('no ACL yet', acls.get(ref).read, project_access=True, users=[], created=None)
    acl = acls.create(entity_ref=ref, users=['u1', 'u2'], project_access=False)
    find('an ACL’s reference', acl.submit(), f'{ref}/acl')
    read = acls.get(ref)
    look('an ACL', read.read, project_access=False)
    find('an ACL’s users', sorted(read.read.users), ['u1', 'u2'])
    read.read.users.append('u3')
    read.submit()
    find('one user more', sorted(acls.get(ref).read.users), ['u1', 'u2', 'u3'])
    find('by the secret itself', sorted(secret.acls.read.users), ['u1', 'u2', 'u3'])
    acls.get(ref).read.remove()
    look('the ACL was removed', acls.get(ref).read, project_access=True, users=[])
    refuse('an ACL of nothing', 'HTTPClientError: Not Found', lambda: acls.get(f'http://x/v1/containers/{MISSING}'))


def look_at_containers(containers, secrets, text, data):
    generic = containers.create(name='generic', secrets={'a': text})
    generic.add('B', data)
    generic.store()
    read = containers.get(generic.container_ref)
    find('a container', [read.name, read.status, sorted(read.secret_refs)], ['generic', 'ACTIVE', ['a', 'b']])
    find('a secret in a container', read.secrets['b'].payload, bytes(range(256)))
    refuse('deletion of a secret in a container', 'HTTPClientError: Conflict', secrets.delete, text.secret_ref)

    # A secret that is not stored yet is stored with its container.
    new = secrets.create(name='phrase', payload='open')
    pair = containers.create_rsa(name='pair', public_key=data, private_key=text, private_key_passphrase=new)
    pair.store()
    phrase = containers.get(pair.container_ref).private_key_passphrase
    look('a pair’s passphrase', phrase, payload='open', name='phrase')
    parts = {'certificate': data, 'private_key': text, 'private_key_passphrase': new}
    twice = containers.create_certificate(name='twice', intermediates=secrets.get(data.secret_ref), **parts)
    refuse('one secret twice', 'HTTPClientError: Bad Request', twice.store)
    whole = containers.create_certificate(name='whole', **parts)
    whole.store()
    read = containers.get(whole.container_ref)
    find('a certificate', [read.certificate.payload, read.private_key.payload], [bytes(range(256)), 'grün'])
    find('no intermediates', read.intermediates, None)

    found = containers.register_consumer(generic.container_ref, 'service', 'https://example.org/1')
    find('a consumer', found.consumers, [{'name': 'service', 'URL': 'https://example.org/1'}])
    containers.register_consumer(generic.container_ref, 'service', 'https://example.org/1')
    find('a consumer once', len(containers.get(generic.container_ref).consumers), 1)
    containers.remove_consumer(generic.container_ref, 'service', 'https://example.org/1')
    find('no consumer', containers.get(generic.container_ref).consumers, [])
    refuse(
        'removal of a consumer that is none',
        'HTTPClientError: Not Found',
        *(containers.remove_consumer, generic.container_ref, 'service', 'https://example.org/1'),
    )
    acl = generic.acls
    acl.add_operation_acl(users=['u1'], operation_type='read')
    acl.submit()
    find('an ACL of a container', containers.get(generic.container_ref).acls.read.users, ['u1'])

    find('list of containers', names(containers.list()), ['generic', 'pair', 'whole'])
    find('by type', names(containers.list(type='rsa')), ['pair'])
    find('by name', names(containers.list(name='whole')), ['whole'])
    find('total of containers', containers.total(), 3)
    containers.delete(generic.container_ref)
    refuse('a deleted container', 'HTTPClientError: Not Found', containers.get, generic.container_ref)


def look_at_orders(orders, containers, secrets):
    order = orders.create_key(name='key', algorithm='aes', bit_length=192, mode='cbc', expiration=FAR)
    done = finished(orders, order.submit())
    look('an order of a key', done, status='ACTIVE', name='key', algorithm='aes', bit_length=192, mode='cbc')
    made = secrets.get(done.secret_ref)
    find('a key’s length', len(made.payload), 24)
    look('a key', made, secret_type='symmetric', algorithm='aes', bit_length=192, mode='cbc', name='key')
    find('a key’s expiration', [made.expiration.isoformat(), done.expiration.isoformat()], [f'{FAR}+00:00'] * 2)

    asked = {'algorithm': 'rsa', 'bit_length': 2048, 'payload_content_type': 'application/octet-stream'}
    order = orders.create_asymmetric(name='locked', pass_phrase='open', **asked)
    done = finished(orders, order.submit())
    look('an order of a pair', done, status='ACTIVE', pass_phrase=None, **asked)
    pair = containers.get(done.container_ref)
    find('a passphrase', pair.private_key_passphrase.payload, b'open')
    find('an encrypted key', pair.private_key.payload.startswith(b'-----BEGIN ENCRYPTED PRIVATE KEY-----'), True)
    find('a public key', pair.public_key.payload.startswith(b'-----BEGIN PUBLIC KEY-----'), True)

    order = orders.create_certificate(name='certificate', subject_dn='CN=www.example.org')
    done = finished(orders, order.submit())
    look('an order of a certificate', done, status='ACTIVE', name='certificate')
    whole = containers.get(done.container_ref)
    find('a certificate’s key', whole.private_key.payload.startswith(b'-----BEGIN PRIVATE KEY-----'), True)

    other = orders.create('key', name='odd', algorithm='rot13', bit_length=128)
    done = finished(orders, other.submit())
    look('a failed order', done, status='ERROR', error_status_code='400', secret_ref=None)
    find('a failed order’s reason', 'rot13' in done.error_reason, True)
    find('list of orders', [item.name for item in orders.list()], ['key', 'locked', 'odd'])
    find('total of orders', orders.total(), 3)
    orders.delete(done.order_ref)
    refuse('a deleted order', 'HTTPClientError: Not Found', orders.get, done.order_ref)
    finished_certificate = finished(orders, orders.create_certificate(request_data='nonsense').submit())
    look('a request that is none', finished_certificate, status='ERROR', error_status_code='400')
