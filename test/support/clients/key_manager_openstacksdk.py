"""Every method of openstacksdk's key manager proxy."""
import openstack

from findings import Recorded, find, look, refuse

MISSING = '00000000-0000-4000-8000-000000000000'
FAR = '2099-01-01T00:00:00'


def look_at_openstacksdk():
    proxy = openstack.connect().key_manager
    look_at_secrets(Recorded(proxy))
    look_at_containers(Recorded(proxy))
    look_at_orders(Recorded(proxy))


def look_at_secrets(keys):
    made = keys.create_secret(
        name='sdk text',
        payload='grün',
        payload_content_type='text/plain',
        secret_type='passphrase',
        algorithm='none',
        bit_length=128,
        mode='ctr',
        expires_at=FAR,
    )
    id = made.secret_ref.split('/')[-1]
    find('SDK: the id of a new secret', made.secret_id, id)
    read = keys.get_secret(id)
    look('SDK: a secret', read, name='sdk text', payload='grün', secret_type='passphrase')
    look('SDK: its state', read, status='ACTIVE', expires_at=FAR)
    look('SDK: its rest', read, algorithm='none', bit_length=128, mode='ctr', content_types={'default': 'text/plain'})
    find('SDK: its times', [bool(read.created_at), bool(read.updated_at), read.secret_id], [True, True, id])
    look('SDK: a secret by its object', keys.get_secret(read), name='sdk text')
    bare = keys.create_secret(name='sdk bare')
    look('SDK: a secret without a payload', keys.get_secret(bare.secret_id), payload=None, content_types=None)
    data = keys.create_secret(
        name='sdk data',
        payload='aGVsbG8=',
        payload_content_type='application/octet-stream',
        payload_content_encoding='base64',
    )
    look('SDK: bytes', keys.get_secret(data.secret_id), payload='hello')

    find('SDK: find', keys.find_secret(id).name, 'sdk text')
    for filters, expected in (
        ({'name': 'sdk text'}, [made]),
        ({'name': 'sdk %', 'sort': 'created:asc'}, [made, bare, data]),
        ({'mode': 'ctr'}, [made]),
        ({'bits': 128}, [made]),
        ({'algorithm': 'none'}, [made]),
        ({'secret_type': 'passphrase'}, [made]),
        ({'expiration': f'gte:{FAR}'}, [made]),
        ({'created': f'lt:{bare.created_at or read.created_at}', 'name': 'sdk %'}, []),
        ({'acl_only': 'true'}, []),
        ({'limit': 1, 'name': 'sdk %'}, [made, bare, data]),
    ):
        listed = [item.name for item in keys.secrets(**filters)]
        find(f'SDK: list of secrets by {filters}', listed, [item.name for item in expected])
    refuse('SDK: list in no order', 'BadRequestException: ', lambda: list(keys.secrets(sort='colour')))
    refuse('SDK: change of a secret', 'HttpException: ', keys.update_secret, read, name='other')
    refuse('SDK: a bad secret', 'BadRequestException: ', keys.create_secret, secret_type='odd')

    for secret in (made, bare, data):
        find('SDK: deletion', keys.delete_secret(secret.secret_id), None)
    find('SDK: deletion of nothing', keys.delete_secret(id), None)
    refuse('SDK: deletion that misses', 'ResourceNotFound: ', keys.delete_secret, id, ignore_missing=False)


def look_at_containers(keys):
    secret = keys.create_secret(name='sdk', payload='x', payload_content_type='text/plain')
    refs = [{'name': 'one', 'secret_ref': secret.secret_ref}]
    made = keys.create_container(name='sdk box', type='generic', secret_refs=refs)
    read = keys.get_container(made.container_id)
    look('SDK: a container', read, name='sdk box', type='generic', status='ACTIVE', secret_refs=refs, consumers=[])
    find('SDK: its times', [bool(read.created_at), bool(read.updated_at)], [True, True])
    find('SDK: list of containers', [item.container_id for item in keys.containers()], [made.container_id])
    find('SDK: find by id', keys.find_container(made.container_id).name, 'sdk box')
    find('SDK: find by name', keys.find_container('sdk box').container_id, made.container_id)
    find('SDK: find nothing', keys.find_container('nowhere'), None)
    refuse('SDK: find that misses', 'ResourceNotFound: ', keys.find_container, 'nowhere', ignore_missing=False)
    refuse('SDK: change of a container', 'HttpException: ', keys.update_container, read, name='other')
    refuse('SDK: a missing container', 'ResourceNotFound: ', keys.get_container, MISSING)
    refuse('SDK: deletion of a secret in a container', 'ConflictException: ', keys.delete_secret, secret.secret_id)
    keys.delete_container(read)
    keys.delete_secret(secret.secret_id)
    delete = keys.delete_container
    refuse('SDK: deletion of no container', 'ResourceNotFound: ', delete, made.container_id, ignore_missing=False)


def look_at_orders(keys):
    meta = {'name': 'sdk key', 'algorithm': 'aes', 'bit_length': 256, 'mode': 'cbc'}
    made = keys.create_order(type='key', meta=meta)
    for _ in range(600):
        read = keys.get_order(made.order_id)
        if read.status != 'PENDING':
            break
    look('SDK: an order', read, status='ACTIVE', type='key', sub_status='Unknown', sub_status_message='Unknown')
    find('SDK: its meta', read.meta, {**meta, 'expiration': None})
    find('SDK: its user', bool(read.creator_id), True)
    find('SDK: its secret', keys.get_secret(read.secret_id).secret_ref, read.secret_ref)
    find('SDK: list of orders', [item.order_id for item in keys.orders(limit=100)], [made.order_id])
    find('SDK: find an order', keys.find_order(made.order_id).meta['name'], 'sdk key')
    find('SDK: find no order', keys.find_order('nowhere'), None)
    refuse('SDK: change of an order', 'HttpException: ', keys.update_order, read, type='asymmetric')
    refuse('SDK: a missing order', 'ResourceNotFound: ', keys.get_order, MISSING)
    refuse('SDK: a bad order', 'BadRequestException: ', keys.create_order, type='odd', meta={})
    keys.delete_order(read)
    refuse('SDK: deletion of no order', 'ResourceNotFound: ', keys.delete_order, made.order_id, ignore_missing=False)
    keys.delete_secret(read.secret_id)
