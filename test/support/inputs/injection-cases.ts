import { mayExceedMatchLimit } from '../../../controller/load-balancer/objects/l7-rules/regular-expression.js'
import { NAMES_DOT } from '../../../controller/provider/amphora/rendering/haproxy/l7.js'
import { SUBNET } from '../clients/load-balancer-api.js'
import { aCase, freeText, type InjectionCase, LINES, SYNTAX, same } from './injection-case.js'
import { tlsCases } from './injection-tls-cases.js'
import { IPV6_SUBNET } from './load-balancer-options.js'

const tag = (field: string, attribute: string) => freeText(field, { body: text => ({ [attribute]: [text] }) })

/** Accepted with any value and without effect: a child belongs to the project of its load balancer. */
const ofParent = (singular: string): InjectionCase[] =>
  ['project_id', 'tenant_id'].map(name =>
    freeText(`${singular}.${name}`, { takes: ['a\nb', '%[src]', `'"#\\`], refuses: ['\0', 'x'.repeat(37)] }),
  )

const described = (singular: string, names: readonly string[]): InjectionCase[] => [
  ...names.map(name => freeText(`${singular}.${name}`)),
  tag(`${singular}.tags[]`, 'tags'),
]

const ADDRESSES = {
  harmless: (text: string) => (text.includes(':') ? '2001:db8:77::77' : '203.0.113.77'),
  takes: ['198.51.100.9', '2001:DB8:0:0::9', '::ffff:192.0.2.9', '2001:db8::192.0.2.9'],
  refuses: [
    '192.0.2.1 backup',
    '192.0.2.1:80',
    '0x7f.1',
    '127.1',
    'fe80::1%lo',
    'unix@/tmp/x',
    'example.org',
    '[::1]',
    '',
    '192.0.2.1\n',
    '::192.0.2.9',
  ],
  rendered: true,
  means: (text: string) => (text.includes(':') ? new URL(`http://[${text}]`).hostname.slice(1, -1) : text),
} satisfies Partial<InjectionCase>

const URL_TAKES = [
  'https://a.example/%41?x=%[src]&y=$HOME',
  `http://u:p@[2001:db8::1]:8080/it's;a(b)*{}`.replace('{}', ''),
  'HTTP://A.example?#',
]
const URL_REFUSES = [
  '',
  '/a',
  'ftp://x/',
  'http://',
  'http://x/ y',
  'http://x/"',
  'http://x/\\',
  'http://x/{}',
  'http://x/\n',
  ' http://x/',
  'http://é/',
  'http:///a',
]

const COOKIE_TAKES = [`a'b#c$d%e&f`, '%x', '$HOME', '`|~']
const COOKIE_REFUSES = ['', 'a b', 'a"b', 'a\\b', 'a;b', 'a,b', 'a)b', 'a=b', '{x}', 'é', 'a\n', '[src]', '/']

const persistence = (type: string) => (cookie_name: string) => ({ session_persistence: { type, cookie_name } })

/** A value between double quotes may contain blanks; the quotes are not part of it. */
const inner = (text: string) => /^"(.*\S.*)"$/.exec(text)?.[1] ?? text

const VALUE_TAKES = [`it's#$HOME\\%[src]{}`, `"a b ' # $HOME"`, '--', '-i', '-f', '"a"b"', ');deny', '"${HOME}"']
const VALUE_REFUSES = ['', 'a b', ' ', 'é', 'a\n', 'a\r', '"a\n"', '\x7f', '"é"']
const EXPRESSION_TAKES = [`^/it's (\\.js|#)$`, '[%"]x', ' a', '\\$HOME', '-i']
const EXPRESSION_REFUSES = ['', '(', '[', 'a**', '(?#x)', '(*FAIL)', '\\1', 'é', 'a\n', '(?<=a)', '{1}', ' ']
const ANY_COMPARISON = ['STARTS_WITH', 'ENDS_WITH', 'CONTAINS', 'EQUAL_TO']

const KEYS: Readonly<Record<string, string>> = { HEADER: 'X-Q', COOKIE: 'X-Q', SSL_DN_FIELD: 'CN' }

function ruleValues(): InjectionCase[] {
  const plain = (type: string, compare_type: string, change: Partial<InjectionCase>) =>
    aCase('rule.value', {
      about: `${type} ${compare_type}`,
      body: value => ({ type, compare_type, value, key: KEYS[type] ?? null }),
      takes: VALUE_TAKES,
      refuses: VALUE_REFUSES,
      frames: [same, text => `"${text} ${text}"`],
      means: inner,
      rendered: true,
      ...change,
    })
  const expression = (type: string) =>
    plain(type, 'REGEX', {
      // an expression that may be too laborious has a second ACL; one that names the dot of a file type compares it too
      harmless: text =>
        `qqharmlessqq${mayExceedMatchLimit(text) ? '.*.*.*' : ''}${type === 'FILE_TYPE' && NAMES_DOT.test(text) ? '\\.' : ''}`,
      takes: EXPRESSION_TAKES,
      refuses: EXPRESSION_REFUSES,
      frames: [same, text => text.replaceAll(/[^\w/]/g, '\\$&')],
      means: same,
    })
  return [
    // a rule with a port reads the whole header
    ...ANY_COMPARISON.map(compare =>
      plain('HOST_NAME', compare, {
        harmless: text => (/:\d+$/.test(inner(text)) ? 'qqharmlessqq:80' : 'qqharmlessqq'),
      }),
    ),
    ...ANY_COMPARISON.map(compare => plain('PATH', compare, {})),
    plain('FILE_TYPE', 'EQUAL_TO', { means: text => inner(text).replace(/^\./, '') }),
    // a value with a comma is matched against the whole header
    ...ANY_COMPARISON.map(compare =>
      plain('HEADER', compare, { harmless: text => (inner(text).includes(',') ? 'qq,harmless' : 'qqharmlessqq') }),
    ),
    ...ANY_COMPARISON.map(compare =>
      plain('COOKIE', compare, {
        takes: [`it's#$HOME%[src]{}`, '--', '-i', ')deny'],
        refuses: [...VALUE_REFUSES, 'a;b', 'a"b', 'a\\b', '"a b"'],
      }),
    ),
    // names in certificates are in any language
    ...ANY_COMPARISON.map(compare =>
      plain('SSL_DN_FIELD', compare, {
        takes: [...VALUE_TAKES, 'a b', ' x', 'é日😀', SYNTAX.join(' ')],
        refuses: ['', ' ', '\u00a0', 'a\n', 'a\r', 'a\0', '\x7f', '\x85', '\u2028'],
      }),
    ),
    ...['HOST_NAME', 'PATH', 'FILE_TYPE', 'HEADER', 'COOKIE', 'SSL_DN_FIELD'].map(expression),
    aCase('rule.value', {
      about: 'SSL_CONN_HAS_CERT',
      body: value => ({ type: 'SSL_CONN_HAS_CERT', compare_type: 'EQUAL_TO', value, key: null }),
      harmless: () => 'true',
      takes: ['True', 'TRUE'],
      refuses: [...SYNTAX, ...LINES, '', 'false', '1', 'true ', 'true\n'],
    }),
    aCase('rule.value', {
      about: 'SSL_VERIFY_RESULT',
      body: value => ({ type: 'SSL_VERIFY_RESULT', compare_type: 'EQUAL_TO', value, key: null }),
      harmless: () => '277277277',
      takes: ['0', '010', '999999999'],
      refuses: [...SYNTAX, ...LINES, '', '-1', '+1', '1.5', '0x1', '1e3', ' 1', '1\n', '1000000000', '1:2', '١'],
      rendered: true,
      means: text => String(Number(text)),
    }),
  ]
}

const ruleKeys = ['HEADER', 'COOKIE'].map(type =>
  aCase('rule.key', {
    about: type,
    body: key => ({ type, compare_type: 'EQUAL_TO', key, value: 'x' }),
    takes: [...COOKIE_TAKES, 'a,b'],
    refuses: COOKIE_REFUSES.filter(text => text !== 'a,b'),
    rendered: true,
  }),
)

const project = (name: string) =>
  aCase(`loadbalancer.${name}`, {
    takes: [`it's"#\\$HOME`, '%[src]', '%%', 'é日'],
    refuses: ['', 'a\nb', 'a\0', '\x7f', '\u2028', 'x'.repeat(37), ' ', 'a b', 'a\u00a0b'],
    rendered: true,
    token: 'admin',
  })

const CODES_REFUSED = [
  '',
  '20',
  '600',
  '099',
  '999',
  '300-200',
  '200-600',
  '200,',
  '200 202',
  '200\n',
  '200-',
  '2xx',
  '200-204,301',
  '200#',
]

/** A case for every string field, or several if it is written in several ways. */
export const injectionCases: readonly InjectionCase[] = [
  ...tlsCases,
  ...described('loadbalancer', ['name', 'description']),
  project('project_id'),
  project('tenant_id'),
  aCase('loadbalancer.vip_address', {
    ...ADDRESSES,
    body: text => ({ vip_address: text, vip_subnet_id: text.includes(':') ? IPV6_SUBNET : SUBNET }),
  }),
  aCase('loadbalancer.additional_vips[].ip_address', {
    ...ADDRESSES,
    body: text => ({
      additional_vips: [{ subnet_id: text.includes(':') ? IPV6_SUBNET : SUBNET.replace('1', '2'), ip_address: text }],
    }),
  }),
  aCase('loadbalancer.provider', { harmless: () => 'amphora', refuses: [...SYNTAX, ...LINES, ''] }),
  aCase('loadbalancer.flavor', { harmless: () => '', refuses: [...SYNTAX, ...LINES, ''], refusals: [400, 404] }),
  aCase('loadbalancer.availability_zone', { harmless: () => '', refuses: [...SYNTAX, ...LINES], refusals: [400, 404] }),

  ...described('listener', ['name', 'description']),
  ...ofParent('listener'),
  freeText('listener.insert_headers{}', { body: text => ({ insert_headers: { 'X-Forwarded-For': text } }) }),
  aCase('listener.insert_headers{key}', {
    body: text => ({ insert_headers: { [text]: 'true' } }),
    harmless: () => 'X-Real-IP',
    refuses: [...SYNTAX, ...LINES, '', '\0', 'X-Forwarded-For ', 'x-forwarded-for', '__proto__', 'constructor'],
    rendered: true,
  }),
  aCase('listener.allowed_cidrs[]', {
    body: text => ({ allowed_cidrs: [text] }),
    harmless: () => '203.0.113.77/32',
    takes: ['198.51.100.0/24', '0.0.0.0/0', '192.0.2.1'],
    refuses: [
      '',
      '1.2.3.4/33',
      '1.2.3.4/08 x',
      '1.2.3/8',
      '0x7f.0.0.1/8',
      '1.2.3.4/8/8',
      '1.2.3.4/',
      '::1%lo/64',
      '1.2.3.4/8\n',
      '::/0',
    ],
    rendered: true,
    means: text => (text.includes('/') ? text : `${text}/32`),
  }),
  ...described('pool', ['name', 'description']),
  ...ofParent('pool'),
  ...['APP_COOKIE', 'HTTP_COOKIE'].map(type =>
    aCase('pool.session_persistence.cookie_name', {
      about: type,
      body: persistence(type),
      takes: COOKIE_TAKES,
      refuses: COOKIE_REFUSES,
      rendered: true,
    }),
  ),
  aCase('pool.session_persistence.persistence_granularity', {
    body: text => ({ session_persistence: { type: 'SOURCE_IP', persistence_granularity: text } }),
    harmless: () => '',
    refuses: [...SYNTAX, ...LINES, '255.255.255.0'],
  }),
  ...described('member', ['name']),
  ...ofParent('member'),
  aCase('member.address', ADDRESSES),
  aCase('member.monitor_address', ADDRESSES),

  ...described('healthmonitor', ['name']),
  ...ofParent('healthmonitor'),
  aCase('healthmonitor.url_path', {
    harmless: () => '/qqharmlessqq',
    takes: [`/it's?q=%20#$HOME&x=[%41];(y)*!`, '/%[src]', '/%%{+Q}r'.replace('{+Q}', ''), '//'],
    refuses: ['', 'a', '/a b', '/"', '/\\', '/{x}', '/<', '/é', '/\n', '/a\r\nHost: x', '/^', '/`', '/|'],
    frames: [text => `/${text}`],
    rendered: true,
  }),
  aCase('healthmonitor.expected_codes', {
    harmless: () => '277',
    takes: ['200', '200,\t302 , 404', '100-599'],
    refuses: CODES_REFUSED,
    frames: [same, text => `200${text}`, text => `200-${text}`, text => `200,${text}`],
    rendered: true,
    means: text => text.replaceAll(/[ \t]/g, ''),
  }),
  ...['HTTP', 'HTTPS'].map(type =>
    aCase('healthmonitor.domain_name', {
      about: type,
      body: text => ({ ...(type === 'HTTPS' ? { type } : {}), http_version: 1.1, domain_name: text }),
      harmless: () => 'qq.harmless',
      takes: ['_dmarc.A.example.', 'x', '1.2'],
      refuses: ['', 'a b', `a'b`, 'a\n', '%[src]', 'a#', '-a', 'é', 'a..b', '.', '$HOME', 'a;b', 'x'.repeat(64)],
      rendered: true,
    }),
  ),

  ...described('l7policy', ['name', 'description']),
  ...ofParent('l7policy'),
  ...(['redirect_url', 'redirect_prefix'] as const).map(field =>
    aCase(`l7policy.${field}`, {
      body: text => ({ action: field === 'redirect_url' ? 'REDIRECT_TO_URL' : 'REDIRECT_PREFIX', [field]: text }),
      harmless: () => 'https://qq.harmless/',
      takes: URL_TAKES,
      refuses: URL_REFUSES,
      frames: [text => `https://a.example/${text}`, text => `http://${text}`],
      rendered: true,
    }),
  ),

  tag('rule.tags[]', 'tags'),
  ...ofParent('rule'),
  ...ruleKeys,
  aCase('rule.key', {
    about: 'dropped',
    body: key => ({ type: 'PATH', compare_type: 'EQUAL_TO', key, value: '/' }),
    takes: [...SYNTAX, ''],
    refuses: ['a\n', 'a\r', '\0'],
  }),
  ...ruleValues(),

  ...['name', 'description'].map(name =>
    freeText(`flavor.${name}`, {
      takes: [SYNTAX.join(' '), LINES.join(' ')],
      body: text => ({ [name]: text }),
      token: 'admin',
      refusals: [400, 409],
    }),
  ),
  ...['flavorprofile', 'availability_zone_profile'].flatMap(singular => [
    freeText(`${singular}.name`, { token: 'admin' }),
    aCase(`${singular}.provider_name`, {
      harmless: () => 'amphora',
      refuses: [...SYNTAX, ...LINES, ''],
      token: 'admin',
    }),
    aCase(`${singular}.${singular === 'flavorprofile' ? 'flavor_data' : 'availability_zone_data'}`, {
      harmless: () => '{}',
      refuses: [...SYNTAX, ...LINES, '', '{"a"', '[]', '{"loadbalancer_topology": "SINGLE\\n"}', '{"x": 1}'],
      frames: [same, text => JSON.stringify({ loadbalancer_topology: text }), text => JSON.stringify({ [text]: text })],
      token: 'admin',
      refusals: [400, 501],
    }),
  ]),
  ...['name', 'description'].map(name =>
    freeText(`availability_zone.${name}`, {
      takes: [SYNTAX.join(' '), LINES.join(' ')],
      token: 'admin',
      refusals: [400, 409],
    }),
  ),
]
