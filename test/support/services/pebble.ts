import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { eventually } from '../eventually.js'
import { makePair } from '../inputs/certificates.js'
import { ownPorts } from '../ports.js'

export type Pebble = {
  directoryUrl: string
  /** PEM file of the CA of the directory's own certificate. */
  caFile: string
  /** Where it looks for http-01 and tls-alpn-01, for every name on loopback unless `resolveTo` said otherwise. */
  httpPort: number
  tlsPort: number
  /** Makes every name lead to an IPv4 address. */
  resolveTo: (address: string) => Promise<void>
  /** A hook for dns-01: a program and its arguments. */
  dnsHook: string[]
  /** The key id and HMAC key of an external account, if pebble demands one. */
  external: { keyId: string; hmacKey: string }
  /** PEM of the root of what it issues. */
  root: () => Promise<string>
}

/** Sets and clears records of pebble's DNS server. */
const HOOK = `
const { KRATER_ACME_ACTION: action, KRATER_ACME_RECORD: record, KRATER_ACME_VALUE: value } = process.env
const path = action === 'publish' ? '/set-txt' : '/clear-txt'
const body = JSON.stringify({ host: record + '.', ...(action === 'publish' && { value }) })
fetch(process.argv[2] + path, { method: 'POST', body }).then(
  answer => { console.log(action, record, answer.status); process.exitCode = answer.ok ? 0 : 1 },
  error => { console.error(error); process.exitCode = 1 })
`

const EXTERNAL = { keyId: 'kid-1', hmacKey: 'zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W' }

/**
 * Debian's pebble with its own DNS server, until the end of the test.
 * @param demands what every client has to do, and whether it looks for challenges at the usual ports
 */
export async function startPebble(
  t: Test,
  demands: {
    externalAccount?: boolean
    nonceRejection?: number
    usualPorts?: boolean
    /** How many of 100 valid authorizations it uses again for another order of the account. */
    reuse?: number
  } = {},
): Promise<Pebble> {
  const directory = mkdtempSync(join(tmpdir(), 'krater-pebble-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const [api = 0, management = 0, http = 0, tls = 0, dns = 0, dnsManagement = 0] = await ownPorts(6)
  const [httpPort, tlsPort] = demands.usualPorts === true ? [80, 443] : [http, tls]
  const ca = makePair({ subject: '/CN=Pebble’s own CA' })
  const names = [
    '-addext',
    'subjectAltName=DNS:localhost,IP:127.0.0.1',
    '-addext',
    'basicConstraints=critical,CA:FALSE',
  ]
  const own = makePair({ subject: '/CN=localhost', issuer: ca, args: names })
  const file = (name: string, content: string): string => {
    writeFileSync(join(directory, name), content)
    return join(directory, name)
  }
  const caFile = file('ca.pem', ca.certificate)
  const settings = {
    listenAddress: `127.0.0.1:${api}`,
    managementListenAddress: `127.0.0.1:${management}`,
    certificate: file('own.pem', own.certificate),
    privateKey: file('own.key', own.privateKey),
    httpPort,
    tlsPort,
    ocspResponderURL: '',
    externalAccountBindingRequired: demands.externalAccount === true,
    externalAccountMACKeys: { [EXTERNAL.keyId]: EXTERNAL.hmacKey },
  }
  const unused = ['-http01', '', '-https01', '', '-tlsalpn01', '', '-doh', '']
  const addresses = ['-defaultIPv4', '127.0.0.1', '-defaultIPv6', '', '-dns01', `127.0.0.1:${dns}`]
  start(t, 'pebble-challtestsrv', [...addresses, ...unused.slice(0, 6), '-management', `127.0.0.1:${dnsManagement}`])
  const words = ['-config', file('pebble.json', JSON.stringify({ pebble: settings })), '-dnsserver', `127.0.0.1:${dns}`]
  start(t, 'pebble', words, {
    PEBBLE_VA_NOSLEEP: '1',
    PEBBLE_WFE_NONCEREJECT: String(demands.nonceRejection ?? 0),
    ...(demands.reuse !== undefined && { PEBBLE_AUTHZREUSE: String(demands.reuse) }),
  })
  const read = (port: number, path: string) => readOver(ca.certificate, `https://127.0.0.1:${port}${path}`)
  await eventually('pebble answers', () => read(api, '/dir').catch(() => null), 20_000)
  return {
    ...{ directoryUrl: `https://127.0.0.1:${api}/dir`, caFile, httpPort, tlsPort, external: EXTERNAL },
    dnsHook: [process.execPath, file('hook.cjs', HOOK), `http://127.0.0.1:${dnsManagement}`],
    resolveTo: async address => {
      const answer = await fetch(`http://127.0.0.1:${dnsManagement}/set-default-ipv4`, {
        method: 'POST',
        body: JSON.stringify({ ip: address }),
        signal: AbortSignal.timeout(5_000),
      })
      if (!answer.ok) throw new Error(`The DNS server of pebble answers ${answer.status}`)
    },
    root: () => read(management, '/roots/0'),
  }
}

/** Starts a program that ends with the test. */
function start(t: Test, program: string, words: string[], environment: Record<string, string> = {}): void {
  const child: ChildProcess = spawn(program, words, {
    env: { PATH: process.env.PATH, ...environment },
    stdio: ['ignore', 'ignore', 'ignore'],
  })
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  })
}

function readOver(ca: string, url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { ca, timeout: 5_000 }, answer => {
      let text = ''
      answer.on('data', chunk => {
        text += chunk
      })
      answer.on('end', () => resolve(text))
    })
    sent.on('error', reject)
    sent.end()
  })
}
