"""Uses every method of openstacksdk's load balancer proxy against the clouds `krater` and `krater-admin`.

Every line on standard output is a finding in JSON: {"name": ..., "got": ..., "expected": ...}.
"""
import os

import openstack

from findings import SUBNET, Recorded, filters, find, find_unused, life, look, refuse

TLS_CONTAINER = os.environ['TLS_CONTAINER']

connection = openstack.connect(cloud='krater')
lb = Recorded(connection.load_balancer)
admin = Recorded(openstack.connect(cloud='krater-admin').load_balancer)
project = connection.current_project_id


def wait(name='web'):
    return lb.wait_for_load_balancer(name, interval=0.05, wait=60)


def names(listed):
    return sorted(item.name for item in listed)


# Load balancers
web = lb.create_load_balancer(
    name='web', description='first', vip_subnet_id=SUBNET, provider='noop_driver', tags=['blue', 'quiet']
)
look('create load balancer', web, name='web', provider='noop_driver', provisioning_status='PENDING_CREATE')
web = wait()
look('wait for load balancer', web, provisioning_status='ACTIVE', is_admin_state_up=True, project_id=project)
twin = lb.create_load_balancer(
    name='dark', vip_network_id=SUBNET, vip_address='203.0.113.5', is_admin_state_up=False, tags=['blue'], provider='amphora'
)
wait('dark')
life(
    'load balancer',
    lb,
    ('load_balancer', 'load_balancers'),
    lb.get_load_balancer(web.id),
    lb.get_load_balancer(twin.id),
    {'name': 'web', 'description': 'second', 'is_admin_state_up': False, 'tags': ['red']},
)
lb.update_load_balancer(web, is_admin_state_up=True)
NO_TRAFFIC = {'active_connections': 0, 'bytes_in': 0, 'bytes_out': 0, 'request_errors': 0, 'total_connections': 0}
look('load balancer statistics', lb.get_load_balancer_statistics(web.id), **NO_TRAFFIC)
refuse('create without a VIP', 'BadRequestException: ', lb.create_load_balancer, name='x')
refuse(
    'create with an unknown provider',
    'BadRequestException: ',
    lb.create_load_balancer,
    vip_subnet_id=SUBNET,
    provider='nobody',
)
lb.create_load_balancer(name='twin', vip_subnet_id=SUBNET, provider='noop_driver')
same = lb.create_load_balancer(name='twin', vip_subnet_id=SUBNET, provider='noop_driver')
refuse('find of a name that two have', 'DuplicateResource: ', lb.find_load_balancer, 'twin')
for balancer in list(lb.load_balancers(name='twin')):
    lb.delete_load_balancer(balancer)

# Listeners
plain = lb.create_listener(
    name='plain', load_balancer_id=web.id, protocol='HTTP', protocol_port=80, tags=['blue', 'quiet'], description='d'
)
look('create listener', plain, name='plain', protocol='HTTP', protocol_port=80, connection_limit=-1)
other = lb.create_listener(
    name='tls',
    load_balancer_id=web.id,
    protocol='TERMINATED_HTTPS',
    protocol_port=443,
    default_tls_container_ref=TLS_CONTAINER,
    tls_ciphers='ECDHE-RSA-AES128-GCM-SHA256',
    tls_versions=['TLSv1.3'],
    alpn_protocols=['h2'],
    is_admin_state_up=False,
    connection_limit=5,
    timeout_client_data=1,
    timeout_member_connect=2,
    timeout_member_data=3,
    timeout_tcp_inspect=4,
    allowed_cidrs=['192.0.2.0/24'],
    insert_headers={'X-Forwarded-For': 'true'},
)
wait()
pool = lb.create_pool(
    name='main', listener_id=plain.id, protocol='HTTP', lb_algorithm='ROUND_ROBIN', tags=['blue'], description='d'
)
wait()
life(
    'listener',
    lb,
    ('listener', 'listeners'),
    lb.get_listener(plain.id),
    lb.get_listener(other.id),
    {
        'description': 'changed',
        'connection_limit': 7,
        'insert_headers': {'X-Forwarded-Port': 'true'},
        'allowed_cidrs': ['198.51.100.0/24'],
        'default_pool_id': pool.id,
        'tags': ['red'],
    },
)
look('listener statistics', lb.get_listener_statistics(plain.id), **NO_TRAFFIC)
refuse(
    'a port that is taken',
    'ConflictException: ',
    lb.create_listener,
    load_balancer_id=web.id,
    protocol='TCP',
    protocol_port=80,
)

# Pools
sticky = lb.create_pool(
    name='sticky',
    loadbalancer_id=web.id,
    protocol='HTTPS',
    lb_algorithm='SOURCE_IP',
    session_persistence={'type': 'SOURCE_IP'},
    is_admin_state_up=False,
    tls_enabled=True,
    tls_ciphers='ECDHE-RSA-AES128-GCM-SHA256',
    tls_versions=['TLSv1.2'],
    tags=['quiet'],
)
by_source = {'type': 'SOURCE_IP', 'cookie_name': None, 'persistence_timeout': None, 'persistence_granularity': None}
look('create pool', sticky, protocol='HTTPS', session_persistence=by_source, tls_enabled=True)
wait()
life(
    'pool',
    lb,
    ('pool', 'pools'),
    lb.get_pool(sticky.id),
    lb.get_pool(pool.id),
    {'description': 'changed', 'lb_algorithm': 'LEAST_CONNECTIONS', 'is_admin_state_up': True, 'tags': ['red']},
)
refuse('a pool without a parent', 'BadRequestException: ', lb.create_pool, protocol='HTTP', lb_algorithm='SOURCE_IP')

# Members
one = lb.create_member(pool, name='one', address='192.0.2.1', protocol_port=80, tags=['blue', 'quiet'])
two = lb.create_member(
    pool.id,
    name='two',
    address='192.0.2.2',
    protocol_port=81,
    subnet_id=SUBNET,
    weight=9,
    backup=True,
    monitor_address='192.0.2.3',
    monitor_port=82,
    is_admin_state_up=False,
)
look('create member', two, weight=9, backup=True, monitor_port=82, is_admin_state_up=False)
wait()
get_one = lb.get_member(one.id, pool.id)
life(
    'member',
    lb,
    ('member', 'members'),
    get_one,
    lb.get_member(two.id, pool),
    {'weight': 0, 'monitor_port': 8080, 'monitor_address': '192.0.2.9', 'backup': True, 'tags': ['red']},
    pool.id,
)
refuse(
    'a member that is there', 'ConflictException: ', lb.create_member, pool, address='192.0.2.1', protocol_port=80
)
lb.delete_member(one, pool)
wait()
find('delete member', names(lb.members(pool)), ['two'])
find('delete of a missing member', lb.delete_member(SUBNET, pool), None)
refuse(
    'delete of a missing member', 'ResourceNotFound: ', lb.delete_member, SUBNET, pool, ignore_missing=False
)

# Health monitors
check = lb.create_health_monitor(
    name='check', pool_id=pool.id, type='HTTP', delay=5, timeout=4, max_retries=3, tags=['blue', 'quiet']
)
look('create health monitor', check, url_path='/', expected_codes='200', http_method='GET', max_retries_down=3)
knock = lb.create_health_monitor(
    name='knock',
    pool_id=sticky.id,
    type='HTTPS',
    delay=6,
    timeout=5,
    max_retries=2,
    max_retries_down=4,
    url_path='/up',
    http_method='HEAD',
    expected_codes='200-204',
    is_admin_state_up=False,
)
wait()
life(
    'health monitor',
    lb,
    ('health_monitor', 'health_monitors'),
    lb.get_health_monitor(check.id),
    lb.get_health_monitor(knock.id),
    {'delay': 10, 'timeout': 9, 'max_retries': 5, 'url_path': '/new', 'expected_codes': '204', 'tags': ['red']},
)
refuse(
    'a second health monitor',
    'ConflictException: ',
    lb.create_health_monitor,
    pool_id=pool.id,
    type='TCP',
    delay=5,
    timeout=4,
    max_retries=3,
)
find('the pool of a health monitor', lb.get_pool(pool.id).health_monitor_id, check.id)
lb.delete_health_monitor(knock)
wait()
find('delete health monitor', names(lb.health_monitors()), ['check'])

# L7 policies and rules
reject = lb.create_l7_policy(
    name='reject', listener_id=plain.id, action='REJECT', tags=['blue', 'quiet'], description='d'
)
look('create L7 policy', reject, action='REJECT', position=1, listener_id=plain.id)
redirect = lb.create_l7_policy(
    name='redirect',
    listener_id=plain.id,
    action='REDIRECT_TO_URL',
    redirect_url='https://example.org/',
    is_admin_state_up=False,
)
wait()
life(
    'L7 policy',
    lb,
    ('l7_policy', 'l7_policies'),
    lb.get_l7_policy(reject.id),
    lb.get_l7_policy(redirect.id),
    {
        'action': 'REDIRECT_PREFIX',
        'redirect_prefix': 'https://example.net',
        'position': 2,
        'description': 'changed',
        'tags': ['red'],
    },
)
rule = lb.create_l7_rule(reject, type='PATH', compare_type='STARTS_WITH', rule_value='/a', tags=['blue', 'quiet'])
look('create L7 rule', rule, type='PATH', compare_type='STARTS_WITH', rule_value='/a', invert=False)
header = lb.create_l7_rule(
    reject.id, type='HEADER', compare_type='EQUAL_TO', key='X-Kind', rule_value='b', invert=True, is_admin_state_up=False
)
wait()
life(
    'L7 rule',
    lb,
    ('l7_rule', 'l7_rules'),
    lb.get_l7_rule(rule.id, reject),
    lb.get_l7_rule(header.id, reject.id),
    {'compare_type': 'CONTAINS', 'rule_value': '/b', 'invert': True, 'tags': ['red']},
    reject.id,
)
lb.delete_l7_rule(header.id, reject)
wait()
find('delete L7 rule', [item.id for item in lb.l7_rules(reject)], [rule.id])
lb.delete_l7_policy(redirect)
wait()
find('delete L7 policy', names(lb.l7_policies()), ['reject'])
lb.delete_pool(sticky)
lb.delete_listener(other)
wait()
find('delete pool', names(lb.pools()), ['main'])
find('delete listener', names(lb.listeners()), ['plain'])

# A whole tree at once
tree = lb.create_load_balancer(
    name='tree',
    vip_subnet_id=SUBNET,
    provider='noop_driver',
    listeners=[
        {
            'name': 'trunk',
            'protocol': 'HTTP',
            'protocol_port': 80,
            'default_pool': {
                'name': 'leaves',
                'protocol': 'HTTP',
                'lb_algorithm': 'ROUND_ROBIN',
                'members': [{'address': '192.0.2.7', 'protocol_port': 80}],
                'healthmonitor': {'type': 'TCP', 'delay': 5, 'timeout': 4, 'max_retries': 3},
            },
            'l7policies': [
                {'action': 'REJECT', 'rules': [{'type': 'PATH', 'compare_type': 'EQUAL_TO', 'value': '/no'}]}
            ],
        }
    ],
)
find('create a whole tree', tree.listeners[0]['name'], 'trunk')
wait('tree')
find('the tree’s members', [item.address for item in lb.members(lb.find_pool('leaves'))], ['192.0.2.7'])
refuse('delete with children', 'BadRequestException: ', lb.delete_load_balancer, tree)
lb.delete_load_balancer(tree, cascade=True)

# Quotas
look('default quota', admin.get_quota_default(), load_balancers=100, listeners=500, pools=500, members=5000, health_monitors=500)
look('update quota', admin.update_quota(project, load_balancers=2, listeners=3), load_balancers=2, listeners=3, pools=500)
look('get quota', lb.get_quota(project), load_balancers=2, listeners=3)
find('list quotas', [item.project_id for item in admin.quotas() if item.listeners == 3], [project])
refuse('over quota', 'HttpException: Quota has been met for resources: Load Balancer', lb.create_load_balancer, vip_subnet_id=SUBNET, provider='noop_driver')
admin.delete_quota(project)
look('delete quota', lb.get_quota(project), load_balancers=100, listeners=500)
refuse('a quota set by a member', 'HttpException: Policy does not allow this request', lb.update_quota, project, load_balancers=2)

# Providers, flavors, availability zones
find('list providers', names(lb.providers()), ['amphora', 'noop_driver', 'octavia'])
capabilities = names(admin.provider_flavor_capabilities('amphora'))
find('list flavor capabilities', 'loadbalancer_topology' in capabilities, True)
pair = admin.create_flavor_profile(
    name='pair', provider_name='amphora', flavor_data='{"loadbalancer_topology": "ACTIVE_STANDBY"}'
)
bare = admin.create_flavor_profile(name='bare', provider_name='noop_driver', flavor_data='{}')
life(
    'flavor profile',
    admin,
    ('flavor_profile', 'flavor_profiles'),
    pair,
    bare,
    {'name': 'couple', 'flavor_data': '{"loadbalancer_topology": "SINGLE"}'},
)
sturdy = admin.create_flavor(name='sturdy', flavor_profile_id=pair.id, description='d', is_enabled=True)
light = admin.create_flavor(name='light', flavor_profile_id=bare.id, is_enabled=False)
look('create flavor', light, name='light', flavor_profile_id=bare.id, is_enabled=False)
life('flavor', admin, ('flavor', 'flavors'), sturdy, light, {'name': 'solid', 'description': 'e', 'is_enabled': False})
refuse('a flavor’s name that is taken', 'ConflictException: ', admin.create_flavor, name='light', flavor_profile_id=bare.id)
refuse('a flavor by a member', 'HttpException: Policy does not allow this request', lb.create_flavor, name='x', flavor_profile_id=bare.id)
for flavor in (sturdy, light):
    admin.delete_flavor(flavor)
for profile in (pair, bare):
    admin.delete_flavor_profile(profile)
find('delete flavors and their profiles', [list(admin.flavors()), list(admin.flavor_profiles())], [[], []])

east = admin.create_availability_zone_profile(
    name='east', provider_name='noop_driver', availability_zone_data='{"compute_zone": "east"}'
)
west = admin.create_availability_zone_profile(name='west', provider_name='amphora', availability_zone_data='{}')
life(
    'availability zone profile',
    admin,
    ('availability_zone_profile', 'availability_zone_profiles'),
    east,
    west,
    {'name': 'orient', 'availability_zone_data': '{"compute_zone": "orient"}'},
)
sunrise = admin.create_availability_zone(name='sunrise', availability_zone_profile_id=east.id, description='d')
sunset = admin.create_availability_zone(name='sunset', availability_zone_profile_id=west.id, is_enabled=False)
look('create availability zone', sunset, name='sunset', is_enabled=False)
life(
    'availability zone',
    admin,
    ('availability_zone', 'availability_zones'),
    sunrise,
    sunset,
    {'description': 'e', 'is_enabled': False},
)
for zone in ('sunrise', 'sunset'):
    admin.delete_availability_zone(zone)
for profile in (east, west):
    admin.delete_availability_zone_profile(profile)
left = [list(admin.availability_zones()), list(admin.availability_zone_profiles())]
find('delete availability zones and their profiles', left, [[], []])

# Amphorae
wait('dark')
amphora = next(admin.amphorae(loadbalancer_id=twin.id))
look('get amphora', admin.get_amphora(amphora.id), loadbalancer_id=twin.id, status='ALLOCATED', role='STANDALONE')
find('find amphora', admin.find_amphora(amphora.id).id, amphora.id)
find('find no amphora', admin.find_amphora(SUBNET), None)
filters('amphorae', type(amphora), admin.amphorae)
admin.configure_amphora(amphora.id)
wait('dark')
admin.failover_amphora(amphora.id)
wait('dark')
second = next(admin.amphorae(loadbalancer_id=twin.id, status='ALLOCATED'))
find('failover of an amphora', second.id != amphora.id, True)
admin.failover_load_balancer(twin.id)
look('failover', wait('dark'), provisioning_status='ACTIVE', vip_address='203.0.113.5')
third = next(admin.amphorae(loadbalancer_id=twin.id, status='ALLOCATED'))
find('failover of a load balancer', third.id != second.id, True)
refuse('amphorae by a member', 'HttpException: Policy does not allow this request', lambda: list(lb.amphorae()))

# The end
lb.delete_load_balancer(web, cascade=True)
lb.delete_load_balancer('no such load balancer')
lb.delete_load_balancer(twin.id)
find_unused()
