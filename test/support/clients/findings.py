"""Findings of the tests of Python libraries: each is a line of JSON on standard output."""
import functools
import inspect
import json

# The id of no object, and of a subnet, because the noop network driver knows every id.
SUBNET = '11111111-1111-4111-8111-111111111111'
# For every class with a recorded object: its methods, and those that were called.
methods = {}
called = {}


class Recorded:
    """An object that records which methods of its class are called."""

    def __init__(self, proxy):
        self.proxy = proxy
        self.kind = type(proxy)
        methods[self.kind] = {
            name for name, value in vars(self.kind).items() if inspect.isfunction(value) and not name.startswith('_')
        }
        called.setdefault(self.kind, set())

    def __getattr__(self, name):
        called[self.kind].add(name)
        return getattr(self.proxy, name)


def find_unused():
    """The last finding of every test."""
    unused = [f'{kind.__name__}.{name}' for kind in methods for name in sorted(methods[kind] - called[kind])]
    find('methods that nothing above calls', unused, [])


def find(name, got, expected):
    print(json.dumps({'name': name, 'got': got, 'expected': expected}, default=str), flush=True)


def look(name, resource, /, **expected):
    """Attributes of a resource, under the SDK's names."""
    find(name, {key: getattr(resource, key) for key in expected}, expected)


def refuse(name, words, call, /, *args, **kwargs):
    """A call that fails with an error that begins with these words: the library's class, then the service's message."""
    try:
        got = f'no error, but {call(*args, **kwargs)}'
    except Exception as error:
        got = f'{type(error).__name__}: {getattr(error, "details", None) or error}'
    find(f'{name} is refused', got.startswith(words) or got, True)


def life(word, proxy, names_of, made, other, change, *parent):
    """get, find, list, page and update of a resource that exists twice."""
    singular, plural = names_of
    method = functools.partial(getattr, proxy)
    key = made.name if made.id is None else made.id
    get, search = method(f'get_{singular}'), method(f'find_{singular}')
    find(f'get {word}', get(key, *parent).to_dict()['name'], made.name)
    if made.id is not None:  # to the SDK an availability zone's name is no id
        find(f'get {word} by its object', get(made, *parent).to_dict()['name'], made.name)
    word_of = made.name or made.id
    find(f'find {word}', search(word_of, *parent).to_dict()['name'], made.name)
    find(f'find {word} by id', search(key, *parent).to_dict()['name'], made.name)
    find(f'find no {word}', search('nowhere', *parent), None)
    refuse(f'find of a missing {word}', 'ResourceNotFound: ', search, 'nowhere', *parent, ignore_missing=False)
    refuse(f'get of a missing {word}', 'ResourceNotFound: ', get, SUBNET, *parent)
    listing = functools.partial(method(plural), *parent)
    both = sorted(str(item.id or item.name) for item in (made, other))
    find(f'list {plural}', sorted(str(item.id or item.name) for item in listing()), both)
    find(f'page {plural}', sorted(str(item.id or item.name) for item in listing(limit=1)), both)
    filters(plural, type(made), listing)
    changed = method(f'update_{singular}')(key, *parent, **change)
    look(f'update {word}', changed, **change)
    look(f'get {word} after its update', get(key, *parent), **change)


# Parameters that the service has no filter for, under the name that the SDK sends.
NO_FILTERS = {
    'listeners': {'sni_container_refs', 'insert_headers', 'allowed_cidrs', 'tls_versions', 'alpn_protocols'},
    'pools': {'health_monitor_id', 'listener_id', 'tls_versions', 'alpn_protocols'},
    'l7_rules': {'rule_value'},
}
TAGS = {
    'tags': lambda tags: {'blue', 'quiet'} <= tags,
    'any_tags': lambda tags: bool({'blue', 'quiet'} & tags),
    'not_tags': lambda tags: not {'blue', 'quiet'} <= tags,
    'not_any_tags': lambda tags: not {'blue', 'quiet'} & tags,
}
# Parents: the SDK filters by an id, and reads a list.
ABOVE = {'load_balancer_id': 'load_balancers', 'loadbalancer_id': 'loadbalancers', 'pool_id': 'pools'}


def filters(plural, kind, listing):
    """Every query parameter of a resource selects what the SDK would select from the whole list by that attribute."""
    everything = list(listing())
    for key in sorted(kind._query_mapping._mapping):
        if key in ('limit', 'marker') or (key, plural) == ('l7_policy_id', 'l7_rules'):
            continue
        if key in TAGS:
            expected = [item.id for item in everything if TAGS[key](set(item.tags))]
            find(f'list {plural} by {key}', [item.id for item in listing(**{key: 'blue,quiet'})], expected)
            continue
        attribute = ABOVE.get(key, key) if hasattr(everything[0], ABOVE.get(key, key)) else key
        for value in {json.dumps(of(item, attribute)): of(item, attribute) for item in everything}.values():
            if key in NO_FILTERS.get(plural, ()):
                refuse(f'list {plural} by {key}', 'BadRequestException: ', lambda: list(listing(**{key: 'x'})))
            elif value is not None and value != '':
                expected = [item.to_dict()['id'] or item.name for item in everything if of(item, attribute) == value]
                got = [item.to_dict()['id'] or item.name for item in listing(**{key: value})]
                find(f'list {plural} by {key}={value}', got, expected)


def of(item, attribute):
    """An attribute; for a list of references, the only id."""
    value = getattr(item, attribute)
    return value[0]['id'] if attribute in ABOVE.values() and value else value
