import { spawnSync } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { build } from 'esbuild'
import { fileOf } from './x509.js'

/** PEM of both; the key is PKCS#8 without a passphrase. */
export type Pair = { certificate: string; privateKey: string }

/** Runs Debian's openssl. @returns its output */
export function opensslBytes(...args: string[]): Buffer {
  const { status, stdout, stderr } = spawnSync('openssl', args, { timeout: 20_000 })
  if (status !== 0) throw new Error(`openssl ${args.join(' ')}: ${stderr}`)
  return stdout
}

export type PairOptions = {
  kind?: 'rsa' | 'ec'
  /** Arguments of `openssl genpkey` instead. */
  key?: string[]
  subject?: string
  /** Further arguments of `openssl req -x509`. */
  args?: string[]
  issuer?: Pair
}

const KEYS = {
  rsa: ['-algorithm', 'RSA', '-pkeyopt', 'rsa_keygen_bits:2048'],
  ec: ['-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:P-256'],
}

/** A new key with its certificate. @param options self-signed without an issuer */
export function makePair({
  kind = 'ec',
  key = KEYS[kind],
  subject = '/CN=www.example.com',
  args = [],
  issuer,
}: PairOptions = {}): Pair {
  const privateKey = opensslBytes('genpkey', ...key).toString()
  const signer = issuer === undefined ? [] : ['-CA', fileOf(issuer.certificate), '-CAkey', fileOf(issuer.privateKey)]
  const certificate = opensslBytes(
    ...['req', '-x509', '-new', '-key', fileOf(privateKey), '-subj', subject, '-days', '30', ...signer, ...args],
  ).toString()
  return { certificate, privateKey }
}

/** A PKCS#12 bundle without a passphrase. @param args of `openssl pkcs12 -export`, which override the others */
export function makeBundle({ certificate, privateKey }: Pair, args: string[] = [], passphrase = ''): Buffer {
  return opensslBytes(
    ...['pkcs12', '-export', '-in', fileOf(certificate), '-inkey', fileOf(privateKey)],
    ...['-passout', `pass:${passphrase}`, ...args],
  )
}

/** A configuration of `openssl ca` for one use. @param database what it has issued */
function authorityConfiguration(database: string): string {
  const settings = ['default_md = sha256', 'default_crl_days = 30', 'rand_serial = yes', 'policy = any']
  const files = [
    `database = ${fileOf(database)}`,
    `crlnumber = ${fileOf('01\n')}`,
    `new_certs_dir = ${dirname(fileOf(''))}`,
  ]
  const own = ['[own]', ...settings, ...files]
  return fileOf(['[ca]', 'default_ca = own', ...own, '[any]', 'commonName = supplied', ''].join('\n'))
}

/** PEM of a revocation list of the issuer. @param revoked a certificate in it; without one, the list is empty */
export function makeRevocationList({ certificate, privateKey }: Pair, revoked?: Pair): string {
  const entry = (pair: Pair) =>
    `R\t991231235959Z\t200101000000Z\t${new X509Certificate(pair.certificate).serialNumber}\tunknown\t/CN=revoked\n`
  const config = authorityConfiguration(revoked === undefined ? '' : entry(revoked))
  return opensslBytes(
    ...['ca', '-gencrl', '-config', config, '-cert', fileOf(certificate), '-keyfile', fileOf(privateKey)],
  ).toString()
}

/** A certificate that has ended. @param name its common name */
export function makeExpiredPair(name: string, issuer: Pair): Pair {
  const privateKey = opensslBytes('genpkey', ...KEYS.ec).toString()
  const request = opensslBytes('req', '-new', '-key', fileOf(privateKey), '-subj', `/CN=${name}`)
  const dates = ['-startdate', '20200101000000Z', '-enddate', '20200102000000Z']
  const signer = ['-cert', fileOf(issuer.certificate), '-keyfile', fileOf(issuer.privateKey)]
  const config = ['-config', authorityConfiguration('')]
  const words = ['ca', '-batch', '-notext', '-in', fileOf(request), ...config, ...signer, ...dates]
  return { certificate: opensslBytes(...words).toString(), privateKey }
}

/** The bundled program of the inspector thread, as in the product. */
export const buildInspectorThread = (directory: string): Promise<string> =>
  buildProgram(directory, 'inspector-thread.js', 'controller/inspection/inspector-thread.ts')

/** The same for the process that checks what is in Barbican. */
export const buildChecker = (directory: string): Promise<string> =>
  buildProgram(directory, 'certificate-checker.js', 'controller/certificates/barbican/checker/check-process.ts')

async function buildProgram(directory: string, name: string, source: string): Promise<string> {
  mkdirSync(directory, { recursive: true })
  const program = join(directory, name)
  await build({
    entryPoints: [join(import.meta.dirname, '../../..', source)],
    ...{ outfile: program, bundle: true, platform: 'node', target: 'node20', format: 'esm' },
    // So that it runs without node_modules too.
    banner: { js: "import { createRequire } from 'node:module'\nconst require = createRequire(import.meta.url)" },
  })
  writeFileSync(join(directory, 'package.json'), '{"type":"module"}')
  return program
}
