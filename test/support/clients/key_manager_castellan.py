"""Castellan, as services use it: every operation on every kind of object that it knows."""
import datetime
import os

from castellan import key_manager
from castellan.common.credentials.keystone_password import KeystonePassword
from castellan.common.credentials.keystone_token import KeystoneToken
from castellan.common.objects import opaque_data, passphrase, private_key, public_key, symmetric_key, x_509
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from keystoneauth1 import identity, session
from oslo_config import cfg
from oslo_context.context import RequestContext

from findings import Recorded, find, look, refuse

MISSING = '00000000-0000-4000-8000-000000000000'


def context_of(name, project):
    return KeystonePassword(
        password=os.environ['OS_PASSWORD'],
        auth_url=os.environ['OS_AUTH_URL'],
        username=name,
        user_domain_name='Default',
        project_name=project,
        project_domain_name='Default',
    )


def certificate_of(key):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, 'www.example.org')])
    now = datetime.datetime.utcnow()
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    return builder.sign(key, hashes.SHA256())


def samples():
    """One object of each kind, with the bytes that Castellan must return."""
    key = rsa.generate_private_key(65537, 2048)
    der = serialization.Encoding.DER
    private = key.private_bytes(der, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(der, serialization.PublicFormat.SubjectPublicKeyInfo)
    return [
        symmetric_key.SymmetricKey('AES', 256, bytes(range(32)), 'symmetric'),
        private_key.PrivateKey('RSA', 2048, private, 'private'),
        public_key.PublicKey('RSA', 2048, public, 'public'),
        x_509.X509(certificate_of(key).public_bytes(der), 'certificate'),
        passphrase.Passphrase('ein Wort für alle'.encode(), 'passphrase'),
        opaque_data.OpaqueData(bytes(range(255, -1, -1)), 'opaque'),
    ]


def look_at_contexts():
    """Every kind of context, with the endpoint of the catalogue and with one of the configuration, with and without a slash."""
    auth_url = os.environ['OS_AUTH_URL']
    password = context_of(os.environ['OS_USERNAME'], os.environ['OS_PROJECT_NAME'])
    auth = identity.V3Password(
        auth_url=auth_url,
        password=password.password,
        username=password.username,
        user_domain_name='Default',
        project_name=password.project_name,
        project_domain_name='Default',
    )
    signed_in = session.Session(auth=auth)
    token, project = auth.get_token(signed_in), auth.get_project_id(signed_in)
    url = auth.get_endpoint(signed_in, service_type='key-manager').rstrip('/')
    contexts = [
        password,
        KeystoneToken(token=token, auth_url=auth_url, project_id=project),
        RequestContext(auth_token=token, project_id=project),
    ]
    for endpoint in (None, url, f'{url}/'):
        conf = cfg.ConfigOpts()
        keys = key_manager.API(conf)
        conf.set_override('auth_endpoint', auth_url, 'barbican')
        conf.set_override('barbican_endpoint', endpoint, 'barbican')
        for context in contexts:
            id = keys.store(context, opaque_data.OpaqueData(b'x', 'of a context'))
            kept = keys.get(context, id).get_encoded()
            keys.delete(context, id)
            find(f'{type(context).__name__} with the endpoint {endpoint}', kept, b'x')


def look_at_castellan():
    look_at_contexts()
    keys = Recorded(key_manager.API(cfg.ConfigOpts()))
    context = context_of(os.environ['OS_USERNAME'], os.environ['OS_PROJECT_NAME'])
    kept = {}
    for sample in samples():
        word, kind = sample.name, type(sample)
        id = kept[kind] = keys.store(context, sample)
        read = keys.get(context, id)
        find(f'{word}: what kind', type(read).__name__, kind.__name__)
        find(f'{word}: the same bytes', read.get_encoded() == sample.get_encoded(), True)
        look(f'{word}: the rest', read, id=id, name=word)
        find(f'{word}: the same object', read == sample, True)
        record = keys.get(context, id, metadata_only=True)
        find(f'{word}: without its bytes', [record.is_metadata_only(), record.name], [True, word])
        find(f'{word}: list of its kind', [item.id for item in keys.list(context, object_type=kind)], [id])
    find('list', len(keys.list(context, metadata_only=True)), 6)

    expiring = keys.store(context, opaque_data.OpaqueData(b'x'), expiration='2099-01-01T00:00:00')
    find('without a name', keys.get(context, expiring).name, None)
    kept['expiring'] = expiring

    made = kept['made'] = keys.create_key(context, 'AES', 256, name='made')
    key = keys.get(context, made)
    find('a new key', [key.algorithm, key.bit_length, len(key.get_encoded()), key.name], ['AES', 256, 32, 'made'])
    hmac = kept['hmac'] = keys.create_key(context, 'HMACSHA256', 256, expiration='2099-01-01T00:00:00')
    find('a new key for HMAC', len(keys.get(context, hmac).get_encoded()), 32)
    refuse('a key of no algorithm', 'KeyManagerError: ', keys.create_key, context, 'rot13', 128)

    halves = keys.create_key_pair(context, 'RSA', 2048, name='pair')
    private, public = (keys.get(context, half) for half in halves)
    find('a new pair', [type(half).__name__ for half in (private, public)], ['PrivateKey', 'PublicKey'])
    own = serialization.load_der_private_key(private.get_encoded(), None)
    other = serialization.load_der_public_key(public.get_encoded())
    same = own.public_key().public_numbers() == other.public_numbers()
    find('the halves of a pair belong together', [same, own.key_size], [True, 2048])
    refuse('deletion of a key in a container', 'KeyManagerError: ', keys.delete, context, halves[0])

    for id in kept.values():
        keys.delete(context, id)
        refuse('a deleted object', 'ManagedObjectNotFoundError: ', keys.get, context, id)
    refuse('deletion of nothing', 'ManagedObjectNotFoundError: ', keys.delete, context, MISSING)
    refuse('a wrong project', 'KeyManagerError: ', keys.list, context_of(os.environ['OS_USERNAME'], 'admin'))
    find('Castellan’s own options', [group for group, _ in keys.list_options_for_discovery()][0], 'barbican')
