import type { Json } from '../clients/json-answers.js'
import { isHostName } from './host-names.js'
import { aCase, freeText, type InjectionCase, LINES, SYNTAX, same } from './injection-case.js'
import { REF } from './load-balancer-options.js'

const ID = '6f0c7d52-9f5e-4a0c-8d4e-0d5b8c1f7a11'
const TARGET = /\/(secrets|containers)\/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\/?$/i

/** What names the object, at the end. Its host could be anyone's, so the rest may be any text. */
const targetIn = (text: string): string => TARGET.exec(text)?.[0] ?? `/secrets/${ID}`

const reference = (field: string, kind: string, around: Json, body: (text: string) => Json): InjectionCase =>
  aCase(field, {
    body,
    around: { [kind]: around },
    harmless: text => `https://qq.harmless/v1${targetIn(text)}`,
    takes: [
      `https://keys.test/v1/containers/${ID}`,
      `%[src]'"#\\$HOME{};<<,a)|/secrets/${ID}/`,
      `/secrets/${ID.toUpperCase()}`,
    ],
    refuses: [
      ...[...SYNTAX, ...LINES, '', 'a', `/secrets/${ID}#`, `/secrets/${ID}/payload`, `/secrets/../${ID}`],
      ...[`/orders/${ID}`, `é/secrets/${ID}`, `a b/secrets/${ID}`, `/secrets/${ID}\n`, `/secrets/${ID}.pem`],
    ],
    frames: [text => `${text}/secrets/${ID}`, text => `https://keys.test/v1/secrets/${ID}${text}`, same],
    rendered: true,
    means: text => text.replace(TARGET, ''),
  })

/** With a part that OpenSSL knows: it ignores what it does not. */
const ciphers = (field: string, kind: string, around: Json): InjectionCase[] => {
  const list = (about: string, known: string, harmless: string) =>
    aCase(field, {
      about,
      around: { [kind]: around },
      body: tls_ciphers => ({ tls_ciphers }),
      harmless: () => harmless,
      takes: [known, `x.y_z=1:${known}`, `::${known}:`, `-i:${known}`, `+x:${known}`],
      refuses: [
        ...SYNTAX,
        ...LINES,
        '',
        ':',
        'x',
        '!ALL',
        '@SECLEVEL=0',
        '-',
        `${known}:@`,
        `${known} x`,
        `${known}\n`,
      ],
      frames: [same, text => `${known}:${text}`, text => `${text}:${known}`],
      rendered: true,
      means: text => text.split(':').filter(Boolean).join(':'),
    })
  return [list('of TLS 1.2', 'AESGCM', 'qqharmlessqq:AESGCM'), suites(field, kind, around)]
}

const suites = (field: string, kind: string, around: Json): InjectionCase =>
  aCase(field, {
    about: 'of TLS 1.3',
    around: { [kind]: around },
    body: tls_ciphers => ({ tls_ciphers }),
    harmless: () => 'TLS_QQ:TLS_AES_128_GCM_SHA256',
    takes: ['TLS_AES_256_GCM_SHA384', 'TLS_AES_128_GCM_SHA256:TLS_x.y=1-+!@'],
    refuses: ['TLS_', 'TLS_X', 'TLS_AES_128_GCM_SHA256:@', 'TLS_AES_128_GCM_SHA256;', 'TLS_AES_128_GCM_SHA256:x'],
    frames: [text => `TLS_AES_128_GCM_SHA256:TLS_${text.replaceAll(':', '')}`],
    rendered: true,
  })

const HTTPS: Json = { protocol: 'TERMINATED_HTTPS', default_tls_container_ref: REF }
const CLIENT_CA: Json = { ...HTTPS, client_authentication: 'OPTIONAL', client_ca_tls_container_ref: REF }
const TO_TLS: Json = { tls_enabled: true }

/** References, cipher strings, fields of certificates, and what members are asked for by SNI. */
export const tlsCases: readonly InjectionCase[] = [
  reference('listener.default_tls_container_ref', 'listeners', HTTPS, text => ({ default_tls_container_ref: text })),
  reference('listener.sni_container_refs[]', 'listeners', HTTPS, text => ({ sni_container_refs: [text] })),
  reference('listener.client_ca_tls_container_ref', 'listeners', CLIENT_CA, text => ({
    client_ca_tls_container_ref: text,
  })),
  reference('listener.client_crl_container_ref', 'listeners', CLIENT_CA, text => ({ client_crl_container_ref: text })),
  ...ciphers('listener.tls_ciphers', 'listeners', HTTPS),

  reference('pool.tls_container_ref', 'pools', TO_TLS, text => ({ tls_container_ref: text })),
  reference('pool.ca_tls_container_ref', 'pools', TO_TLS, text => ({ ca_tls_container_ref: text })),
  reference('pool.crl_container_ref', 'pools', { ...TO_TLS, ca_tls_container_ref: REF }, text => ({
    crl_container_ref: text,
  })),
  ...ciphers('pool.tls_ciphers', 'pools', { ...TO_TLS, members: [{ address: '192.0.2.10', protocol_port: 443 }] }),

  // members that speak TLS are asked for it by SNI if it is the name of a host
  freeText('member.name', {
    about: 'towards TLS',
    around: { pools: TO_TLS },
    harmless: text => (isHostName(text) ? 'qq.harmless' : 'qqharmlessqq'),
    takes: [
      ...['A.example', '_x.example.org', 'xn--bcher-kva.example', 'a-b.c1', 'a.example.', 'a_b.example', 'a', ''],
      ...['1.2.3.4', '-a.example', 'a..b', 'a.b-', `a.b'`, 'a.b)', 'a.b,x', 'a.b ', 'a.b\n', '%[src].b', ...SYNTAX],
    ],
    frames: [same, text => `a.${text}`, text => `${text}.example`],
    rendered: isHostName,
  }),

  aCase('rule.key', {
    about: 'SSL_DN_FIELD',
    body: key => ({ type: 'SSL_DN_FIELD', compare_type: 'EQUAL_TO', key, value: 'x' }),
    takes: ['CN', 'x-1-', 'a'.repeat(64)],
    refuses: [
      ...SYNTAX,
      '',
      'a b',
      'a=b',
      '{x}',
      'é',
      'a\n',
      '[src]',
      '`|~',
      '1a',
      '-a',
      'a_b',
      'a.b',
      `a'`,
      'a,1',
      'a'.repeat(65),
    ],
    rendered: true,
  }),
]
