import t from 'tap'
import {
  address,
  bracketedAddress,
  type ConfigurationWord,
  cidr,
  cookieName,
  endpoint,
  headerValue,
  hostCidr,
  httpMethod,
  identifier,
  integer,
  keywords,
  logFormat,
  milliseconds,
  pingMessage,
  quoted,
  redirectCode,
  redirectLocation,
  regularExpression,
  requestField,
  requestTarget,
  responseCookie,
  sample,
  seconds,
  serverName,
  statusCodes,
  textOf,
} from '../../../controller/provider/amphora/rendering/quote.js'
import { compileTemplate, type TemplateData } from '../../../controller/provider/amphora/rendering/templates.js'
import { ProvisioningFault } from '../../../controller/provider/provider.js'
import { type StringField, stringFields } from '../../golden/hostile.js'
import { renderText, tryHostileTexts } from '../../support/inputs/hostile-texts.js'

const refused = { name: 'ProvisioningFault', code: 'configuration-refused' }

t.test('quoted text has no special meaning in the configuration', async t => {
  t.equal(textOf(quoted(`a b # "c" $HOME \\ %[src]`, 'x')), `'a b # "c" $HOME \\ %[src]'`)
  t.equal(textOf(quoted(`it's`, 'x')), `'it'\\''s'`)
  for (const bad of ['', ' ', 'a\nb', 'a\rb', 'a\0b', '\t', '\x7f', '\x85', '\u2028', '\ud800']) {
    t.throws(() => quoted(bad, 'x'), refused)
  }
})

t.test('percent signs in tenants’ text are doubled in log formats, ours are kept', async t => {
  t.equal(textOf(headerValue('100%[src]', 'x')), `'100%%[src]'`)
  t.equal(textOf(logFormat`${'p%x'} %ci ${'%'}%{+Q}r`), `'p%%x %ci %%%{+Q}r'`)
  t.throws(() => logFormat`${'a\nb'} %ci`, refused)
})

t.test('a refusal names the field and shows the value escaped', async t => {
  try {
    identifier(`bad\n\u2028${'x'.repeat(500)}`, 'Listener 1, id')
    t.fail('the text was not refused')
  } catch (error) {
    t.type(error, ProvisioningFault)
    const { message } = error as Error
    t.match(message, /^Listener 1, id is not an identifier: "bad\\n\\u\{2028\}x/)
    t.notMatch(message, /\n/)
    t.ok(message.length < 200)
  }
})

t.test('addresses are written in canonical form or refused', async t => {
  t.equal(textOf(address('192.0.2.1', 'x')), '192.0.2.1')
  t.equal(textOf(address('2001:DB8:0:0::1', 'x')), '2001:db8::1')
  t.equal(textOf(bracketedAddress('2001:db8::1', 'x')), '[2001:db8::1]')
  t.equal(textOf(endpoint('::1', 80, 'x')), '[::1]:80')
  t.equal(textOf(hostCidr('::1', 'x')), '::1/128')
  t.equal(textOf(hostCidr('192.0.2.1', 'x')), '192.0.2.1/32')
  t.equal(textOf(cidr('192.0.2.0/24', 'x')), '192.0.2.0/24')
  const bad = [
    '0177.0.0.1',
    '1',
    '1.2.3',
    '0x7f.1',
    'fe80::1%eth0',
    'host',
    '',
    ' 1.2.3.4',
    '1.2.3.4 ',
    '[::1]',
    '::1/64',
  ]
  for (const text of bad) t.throws(() => address(text, 'x'), refused, JSON.stringify(text))
  for (const text of ['192.0.2.0', '192.0.2.0/33', '::/129', '::/1x', '::/1/2', '/8', 'x/8', '::/-1']) {
    t.throws(() => cidr(text, 'x'), refused, text)
  }
  for (const port of [0, 65_536, 1.5, Number.NaN]) t.throws(() => endpoint('::1', port, 'x'), refused, String(port))
})

t.test('numbers stay within the limits of HAProxy', async t => {
  t.equal(textOf(integer(256, 'x', 0, 256)), '256')
  for (const value of [-1, 257, 0.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    t.throws(() => integer(value, 'x', 0, 256), refused, String(value))
  }
  t.equal(textOf(milliseconds(1, 'x')), '1ms')
  t.equal(textOf(milliseconds(0, 'x')), '2147483647ms')
  t.equal(textOf(milliseconds(99_999_999_999, 'x')), '2147483647ms')
  t.equal(textOf(seconds(0, 'x')), '1s')
  t.equal(textOf(seconds(99_999_999, 'x')), '2147483s')
  t.throws(() => seconds(-1, 'x'), refused)
})

t.test('the target, method and expected codes of a health check are written or refused', async t => {
  t.equal(textOf(requestTarget(`/a'b?c=%20#"$\\`, 'x')), `'/a'\\''b?c=%20#"$\\'`)
  for (const text of ['', 'a', '/a b', '/a\tb', '/é', '/a\n', 'http://x/']) {
    t.throws(() => requestTarget(text, 'x'), refused, JSON.stringify(text))
  }
  t.equal(textOf(httpMethod('OPTIONS', 'x')), 'OPTIONS')
  for (const text of ['get', '', 'GET X', 'GET\n']) t.throws(() => httpMethod(text, 'x'), refused)
  t.equal(textOf(statusCodes('200 , 202,300-399', 'x')), '200,202,300-399')
  for (const text of ['', '20', '600', '200,', '300-200', '200 202', '200\n201', '200-']) {
    t.throws(() => statusCodes(text, 'x'), refused, JSON.stringify(text))
  }
})

t.test('the name of a header or cookie is one quoted argument', async t => {
  t.equal(textOf(requestField('req.hdr', 'X-Token', 'x')), `'req.hdr("X-Token")'`)
  t.equal(textOf(requestField('req.cook', `a,b'c%[x`.slice(0, 6), 'x')), `'req.cook("a,b'\\''c%")'`)
  for (const text of ['', 'a b', 'a"', 'a(b)', 'a\\', 'é', 'a\n', 'a:', 'x'.repeat(256)]) {
    t.throws(() => requestField('req.hdr', text, 'x'), refused, JSON.stringify(text))
  }
})

t.test('a redirect location is written literally', async t => {
  t.equal(
    textOf(redirectLocation(`https://example.org/%41?it's="#{}%[src]\\`, 'x')),
    `'https://example.org/%%41?it'\\''s="#{}%%[src]\\'`,
  )
  t.equal(textOf(redirectLocation('HTTP://é.org/日', 'x')), `'HTTP://%%C3%%A9.org/%%E6%%97%%A5'`)
  const bad = [
    '',
    '/a',
    'ftp://x/',
    'javascript:x',
    'http://',
    'http:///a',
    'http://?',
    'http://x/a b',
    'http://x/\n',
    'http://x/\t',
  ]
  for (const text of [...bad, 'http://x/\u00a0', 'http://x/\u2028', 'http://x/\ud800', ' http://x/', 'a\nhttp://x/']) {
    t.throws(() => redirectLocation(text, 'x'), refused, escape(text))
  }
  t.equal(textOf(redirectCode(308, 'x')), '308')
  for (const code of [200, 300, 304, 306, 400, Number.NaN]) t.throws(() => redirectCode(code, 'x'), refused)
})

t.test('a regular expression is written unchanged or refused with a reason', async t => {
  t.equal(textOf(regularExpression(`^/it's(\\.js|#)$`, 'x')), `'^/it'\\''s(\\.js|#)$'`)
  t.throws(() => regularExpression('(', 'Rule 1, value'), { ...refused, message: /^Rule 1, value has an opening/ })
})

t.test('cookie names, server names and ping questions are written or refused', async t => {
  t.equal(textOf(cookieName(`it's$#`, 'x')), `'it'\\''s$#'`)
  t.equal(textOf(responseCookie(`it's$#`, 'x')), `'res.cook("it'\\''s$#")'`)
  for (const text of ['', 'a b', 'a"b', 'a\\b', 'a;b', 'a=b', 'a)b', 'é', 'a\nb', 'a'.repeat(256)]) {
    t.throws(() => cookieName(text, 'x'), refused, JSON.stringify(text))
    t.throws(() => responseCookie(text, 'x'), refused, JSON.stringify(text))
  }
  t.equal(textOf(serverName('www.example.org', 'x')), 'www.example.org')
  for (const text of ['', '-a', 'a b', `a'b`, 'a;b', 'a\n', 'é']) t.throws(() => serverName(text, 'x'), refused)
  const question = { subject: 'p:l:m', address: '::1', timeoutSeconds: 3, rise: 1, fall: 2 }
  t.equal(textOf(pingMessage(question, 'x')), 'ping,p:l:m,::1,3,1,2!')
  t.throws(() => pingMessage({ ...question, subject: 'a b' }, 'x'), refused)
  t.throws(() => pingMessage({ ...question, address: '1.2.3.4,9' }, 'x'), refused)
})

t.test('keywords and sample expressions allow no special characters', async t => {
  t.equal(textOf(keywords('log stdout format iso')), 'log stdout format iso')
  for (const text of ['', ' a', 'a  b', 'a\nb', `'a'`, 'a#b', '%[x]']) t.throws(() => keywords(text), refused)
  t.equal(textOf(sample('hash src,concat(:,txn.port)')), 'hash src,concat(:,txn.port)')
  for (const text of ['', 'src ', 'a(b', `req.cook("a")`, 'a\nb', 'a;b']) t.throws(() => sample(text), refused)
})

t.test('a template accepts only words from the writer', async t => {
  const render = compileTemplate<TemplateData>('a {{value}}{{#each list}} {{this}}{{/each}}')
  t.equal(render({ value: quoted('<&>', 'x'), list: [keywords('b')] }), `a '<&>' b`)
  const forged = [
    'text',
    1,
    undefined,
    { text: 'forged' },
    Object.create(quoted('x', 'x')),
    structuredClone(quoted('x', 'x')),
    () => 'function',
  ] as unknown[]
  for (const value of forged) {
    t.throws(() => render({ value: value as ConfigurationWord, list: [] }), TypeError, String(value))
    t.throws(() => render({ value: keywords('a'), list: [value as ConfigurationWord] }), TypeError)
  }
})

t.test('an invalid template is found when it is compiled, a missing value when it is rendered', async t => {
  for (const source of ['{{#if a}}', '{{a', '{{shout a}}', '{{> partial}}x{{/if}}']) {
    t.throws(() => compileTemplate(source), Error, source)
  }
  t.throws(() => compileTemplate('{{missing}}')({}), /missing/, 'a missing value')
})

for (const field of stringFields) {
  t.test(`property: ${field.name} is refused or changes no other word`, async t => {
    // integration/provider/hostile-texts.test.ts tries more.
    t.doesNotThrow(() => tryHostileTexts(field, 30))
  })
}

t.test('common special characters in tenants’ values are accepted', async t => {
  const texts = ['100%', `it's`, 'a"b', '#', '$HOME', '\\', '%[src]']
  const l7 = ['value of an l7 rule, header', 'value of an l7 rule, path', 'redirect_url, path']
  for (const field of ['project_id', 'domain_name', 'url_path', ...l7]) {
    const { treeWith } = stringFields.find(({ name }) => name === field) as StringField
    for (const text of texts) t.ok(renderText(treeWith(field === 'url_path' ? `/${text}` : text)), `${field} ${text}`)
  }
})
