import type { L7RuleNode } from '../../../controller/load-balancer/tree/tree.js'
import type { L7Request } from '../clients/l7-traffic.js'

type Header = readonly [name: string, value: string]
export const withPath = (path: string): L7Request => ({ path, headers: [['Host', 'x']] })
export const withHost = (host: string): L7Request => ({ path: '/', headers: [['Host', host]] })
export const withHeaders = (...headers: Header[]): L7Request => ({ path: '/', headers: [['Host', 'x'], ...headers] })
const withCookies = (...lines: string[]) => withHeaders(...lines.map((line): Header => ['Cookie', line]))
const withoutHost: L7Request = { path: '/', headers: [['Connection', 'close']] }

type RuleCase = { rule: Partial<L7RuleNode>; matches: L7Request[]; misses: L7Request[] }

export const host = (compareType: L7RuleNode['compareType'], value: string) => ({
  type: 'HOST_NAME' as const,
  compareType,
  value,
})
export const path = (compareType: L7RuleNode['compareType'], value: string) => ({
  type: 'PATH' as const,
  compareType,
  value,
})
const file = (compareType: L7RuleNode['compareType'], value: string) => ({
  type: 'FILE_TYPE' as const,
  compareType,
  value,
})
export const header = (compareType: L7RuleNode['compareType'], value: string, key = 'X-Kind') => ({
  ...{ type: 'HEADER' as const, compareType, key, value },
})
const cookie = (compareType: L7RuleNode['compareType'], value: string, key = 'kind') => ({
  ...{ type: 'COOKIE' as const, compareType, key, value },
})

/** Rules of every type and comparison, with requests that match and requests that do not. */
export const ruleCases: RuleCase[] = [
  {
    rule: host('EQUAL_TO', 'WWW.example.org'),
    matches: [withHost('www.example.org'), withHost('Www.Example.ORG:8080'), withHost('www.example.org:')],
    misses: [withHost('example.org'), withHost('www.example.org.evil.net'), withHost('www.example.org,x'), withoutHost],
  },
  {
    rule: host('EQUAL_TO', 'www.example.org:8080'),
    matches: [withHost('www.example.org:8080'), withHost('WWW.example.org:8080')],
    misses: [withHost('www.example.org'), withHost('www.example.org:80')],
  },
  {
    rule: host('EQUAL_TO', '[2001:db8::1]'),
    matches: [withHost('[2001:db8::1]'), withHost('[2001:DB8::1]:80')],
    misses: [withHost('[2001:db8::12]'), withHost('[2001:db8::]')],
  },
  { rule: host('STARTS_WITH', 'api.'), matches: [withHost('API.x')], misses: [withHost('x.api.')] },
  { rule: host('ENDS_WITH', '.org'), matches: [withHost('a.ORG:99')], misses: [withHost('a.org.x'), withHost('org')] },
  { rule: host('CONTAINS', 'am'), matches: [withHost('exAMple')], misses: [withHost('a.m')] },
  {
    rule: host('REGEX', '^(a|b)\\.example$'),
    matches: [withHost('b.EXAMPLE:1')],
    misses: [withHost('c.example'), withHost('aa.example')],
  },
  {
    rule: path('EQUAL_TO', '/a'),
    matches: [withPath('/a'), withPath('/a?b=c'), withPath('/a?')],
    misses: [withPath('/A'), withPath('/a/'), withPath('/ab'), withPath('/%61'), withPath('/?/a')],
  },
  { rule: path('STARTS_WITH', '/a'), matches: [withPath('/ab/c')], misses: [withPath('/b/a'), withPath('/')] },
  { rule: path('ENDS_WITH', '/z'), matches: [withPath('/a/z?q')], misses: [withPath('/z/a'), withPath('/a?/z')] },
  { rule: path('CONTAINS', '/b/'), matches: [withPath('/a/b/c')], misses: [withPath('/a/b'), withPath('/?/b/')] },
  {
    rule: path('REGEX', '^/v[0-9]+/(?:x|y)$'),
    matches: [withPath('/v12/y')],
    misses: [withPath('/v/y'), withPath('/v1/xy'), withPath('/V1/x')],
  },
  {
    rule: file('EQUAL_TO', 'jpg'),
    matches: [withPath('/a.jpg'), withPath('/a/b.c.jpg?x=y')],
    misses: [withPath('/ajpg'), withPath('/a.JPG'), withPath('/a.jpg/b'), withPath('/a?b.jpg'), withPath('/jpg')],
  },
  { rule: file('EQUAL_TO', '.jpg'), matches: [withPath('/a.jpg')], misses: [withPath('/a..png'), withPath('/ajpg')] },
  {
    rule: file('REGEX', '\\.(jpe?g|png)$'),
    matches: [withPath('/a.jpeg'), withPath('/b.png'), withPath('/x.gif.png?q=.gif')],
    misses: [withPath('/b.gif'), withPath('/a.png/b'), withPath('/a.png.gif'), withPath('/png')],
  },
  {
    rule: file('REGEX', '^(jpe?g|png)$'),
    matches: [withPath('/a.jpeg'), withPath('/png/b.c.png')],
    misses: [withPath('/png'), withPath('/a.pngx'), withPath('/a.png/'), withPath('/.png/x'), withPath('/a?b.png')],
  },
  {
    rule: file('REGEX', 'jpg|png'),
    matches: [withPath('/a.xjpgx')],
    misses: [withPath('/jpg/png.gif'), withPath('/jpg.d/png'), withPath('/?jpg')],
  },
  {
    rule: { ...file('REGEX', '^[a-o]*$') },
    matches: [withPath('/a.gif')],
    misses: [withPath('/a.png'), withPath('/a.'), withPath('/a'), withPath('/')],
  },
  {
    rule: header('EQUAL_TO', 'b'),
    matches: [
      withHeaders(['x-kind', 'b']),
      withHeaders(['X-Kind', 'a, b']),
      withHeaders(['X-Kind', 'a'], ['X-Kind', 'b']),
    ],
    misses: [withHeaders(), withHeaders(['X-Kind', 'ab']), withHeaders(['X-Kind', 'B']), withHeaders(['X-Kinds', 'b'])],
  },
  {
    rule: header('STARTS_WITH', 'b'),
    matches: [withHeaders(['X-Kind', 'a,bc'])],
    misses: [withHeaders(['X-Kind', 'ab'])],
  },
  {
    rule: header('ENDS_WITH', 'b'),
    matches: [withHeaders(['X-Kind', 'ab, c'])],
    misses: [withHeaders(['X-Kind', 'bc'])],
  },
  { rule: header('CONTAINS', 'b'), matches: [withHeaders(['X-Kind', 'abc'])], misses: [withHeaders(['X-Kind', 'ac'])] },
  {
    rule: header('REGEX', '^b+$'),
    matches: [withHeaders(['X-Kind', 'a, bb'])],
    misses: [withHeaders(['X-Kind', 'abb'])],
  },
  {
    rule: header('EQUAL_TO', '"a b"'),
    matches: [withHeaders(['X-Kind', 'a b'])],
    misses: [withHeaders(['X-Kind', '"a b"']), withHeaders(['X-Kind', 'a  b'])],
  },
  {
    rule: header('CONTAINS', 'KHTML,', 'User-Agent'),
    matches: [withHeaders(['User-Agent', 'x (KHTML, like Gecko)'])],
    misses: [withHeaders(['User-Agent', 'x (KHTML like Gecko)'])],
  },
  {
    rule: cookie('EQUAL_TO', 'b'),
    matches: [withCookies('kind=b'), withCookies('a=c; kind=a; kind=b'), withCookies('kind=a', 'kind=b')],
    misses: [
      withCookies('kind=ab'),
      withCookies('Kind=b'),
      withCookies('xkind=b'),
      withCookies('a=kind=b'),
      withHeaders(),
    ],
  },
  { rule: cookie('STARTS_WITH', 'b'), matches: [withCookies('kind=bc')], misses: [withCookies('kind=cb')] },
  { rule: cookie('ENDS_WITH', 'b'), matches: [withCookies('kind=ab')], misses: [withCookies('kind=bc')] },
  { rule: cookie('CONTAINS', 'b'), matches: [withCookies('kind=abc')], misses: [withCookies('kind=ac; x=b')] },
  { rule: cookie('REGEX', '^[0-9]{2}$'), matches: [withCookies('kind=42')], misses: [withCookies('kind=423')] },
  // what is special to HAProxy, a log format or a shell is taken literally
  ...['-i', '}', '{', '#', '%[src]', '%41', `it's`, '"', '\\', '$HOME', '-m', '--', 'if', '||', '!', '*', 'or'].flatMap(
    (text): RuleCase[] => [
      {
        rule: header('EQUAL_TO', text),
        matches: [withHeaders(['X-Kind', text])],
        misses: [withHeaders(['X-Kind', 'I'])],
      },
      {
        rule: path('EQUAL_TO', `/${text}`),
        matches: text === '#' ? [] : [withPath(`/${text}`)],
        misses: text === '#' ? [] : [withPath('/'), withPath(`/x${text}`)],
      },
    ],
  ),
  ...[`a!#$%&'*+-.^_\`|~b`, 'if', '-i'].flatMap((key): RuleCase[] => [
    { rule: header('EQUAL_TO', 'v', key), matches: [withHeaders([key, 'v'])], misses: [withHeaders(['a', 'v'])] },
    { rule: cookie('EQUAL_TO', 'v', key), matches: [withCookies(`${key}=v`)], misses: [withCookies('a=v')] },
  ]),
]
