import { createPrivateKey, generateKeyPairSync, type KeyObject } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CaCertificate, randomSerial, readCaCertificate, writeCertificate } from '../../../x509/certificate.js'
import type { DistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import type { GeneralName } from '../../../x509/encoding/general-names.js'
import { encodeName } from '../../../x509/encoding/name-encoding.js'
import { encodePem } from '../../../x509/encoding/pem.js'
import {
  authorityKeyIdentifier,
  basicConstraints,
  extendedKeyUsage,
  keyUsage,
  subjectAltName,
  subjectKeyIdentifier,
} from '../../../x509/extensions.js'
import { keyIdentifierOf, type PublicKey, publicKeyOf } from '../../../x509/public-key.js'
import { readServerCertificate, type ServerCertificate } from '../../http/tls/server-certificate.js'
import { ConfigurationError } from '../../options/configuration-error.js'
import { makePrivateFile, writePrivateFile } from '../../process/private-file.js'
import { OperatorError } from '../operator-error.js'

/**
 * The CA of the APIs' own certificates. Its key is a file: the key manager's CA could not issue the certificate that
 * the key manager and the identity service need before they answer.
 */
export type ApiAuthority = { key: KeyObject; certificate: string; own: CaCertificate }

/** The CA's private key, and its certificate, which every client may have. */
export type AuthorityFiles = { key: string; certificate: string }

const DAY_MS = 86_400_000
const AUTHORITY_DAYS = 3_650
const SERVER_DAYS = 30
/** How far clients' clocks may be behind. */
const CLOCK_SKEW_MS = 5 * 60_000

/** Where clients find the certificate of the CA. */
export const authorityCertificateFile = (directory: string): string => join(directory, 'api-ca.pem')

/** The time at which a certificate is replaced: two thirds of its life. */
export const renewalTime = ({ notBefore, notAfter }: { notBefore: Date; notAfter: Date }): Date =>
  new Date(notBefore.getTime() + ((notAfter.getTime() - notBefore.getTime()) * 2) / 3)

/**
 * Makes the CA at the first start, and keeps it later.
 * @throws OperatorError when its key is lost: clients have its certificate, and would refuse those of another
 */
export function ensureApiAuthority(files: AuthorityFiles): void {
  if (!existsSync(files.key) && existsSync(files.certificate)) {
    throw new OperatorError(
      `The key ${files.key} of the CA ${files.certificate} is missing. Copy it back from a backup, with mode 600. To make another CA instead, remove ${files.certificate}; then every client needs the new file.`,
    )
  }
  if (!existsSync(files.key)) {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
    makePrivateFile(files.key, privateKey.export({ type: 'pkcs8', format: 'pem' }).toString())
  }
  loadApiAuthority(files)
}

/**
 * Reads the CA. At two thirds of its life it gets a new certificate for the same key and name, so clients with the former
 * one go on until that ends.
 * @throws ConfigurationError when its key cannot be used
 */
export function loadApiAuthority(
  { key: path, certificate: certificatePath }: AuthorityFiles,
  now = new Date(),
): ApiAuthority {
  const key = readKey(path)
  const known = existsSync(certificatePath) ? readOwn(readFileSync(certificatePath, 'utf8'), key) : null
  if (known !== null && now < renewalTime(known.own)) return { key, ...known }
  const certificate = selfSigned(key, now)
  writePrivateFile(certificatePath, certificate, 0o644)
  return { key, certificate, own: readCaCertificate(certificate) }
}

function readKey(path: string): KeyObject {
  try {
    return createPrivateKey(readFileSync(path, 'utf8'))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new ConfigurationError(
      `${path}, the key of the APIs' CA, cannot be read (${code}). The first \`krater up\` or \`krater db migrate\` with api.tls makes it; later, and on other machines, copy it from a backup.`,
    )
  }
}

/** @returns null for the certificate of another key, or none */
function readOwn(certificate: string, key: KeyObject): { certificate: string; own: CaCertificate } | null {
  try {
    const own = readCaCertificate(certificate)
    return own.keyIdentifier.equals(keyIdentifierOf(publicKeyOf(key))) ? { certificate, own } : null
  } catch {
    return null
  }
}

const commonName = (value: string): DistinguishedName => [[{ type: '2.5.4.3', value }]]

function selfSigned(key: KeyObject, now: Date): string {
  const publicKey = publicKeyOf(key)
  const identifier = keyIdentifierOf(publicKey)
  // The same for the same key: a renewed certificate must have the name that issued ones refer to.
  const subject = encodeName(commonName(`Krater API CA ${identifier.toString('hex').slice(0, 8)}`))
  const extensions = [basicConstraints(0), keyUsage('keyCertSign', 'cRLSign'), ...identifiers(publicKey, identifier)]
  const content = { serial: randomSerial(), subject, issuer: subject, publicKey, extensions }
  return encodePem('CERTIFICATE', writeCertificate({ ...content, ...validity(now, AUTHORITY_DAYS) }, key))
}

/** Issues a certificate with a new key, which exists only in this process. @param names the first is its common name */
export function issueServerCertificate(
  authority: ApiAuthority,
  names: readonly GeneralName[],
  now: Date,
): ServerCertificate {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' })
  const publicKey = publicKeyOf(privateKey)
  const period = validity(now, SERVER_DAYS)
  const der = writeCertificate(
    {
      ...{ serial: randomSerial(), publicKey, issuer: authority.own.subject },
      subject: encodeName(commonName((names[0]?.value ?? 'localhost').slice(0, 64))),
      notBefore: period.notBefore,
      notAfter: new Date(Math.min(period.notAfter.getTime(), authority.own.notAfter.getTime())),
      extensions: [
        basicConstraints(null),
        keyUsage('digitalSignature'),
        extendedKeyUsage('serverAuth'),
        subjectAltName(names, false),
        ...identifiers(publicKey, authority.own.keyIdentifier),
      ],
    },
    authority.key,
  )
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
  return readServerCertificate(encodePem('CERTIFICATE', der), key)
}

const identifiers = (publicKey: PublicKey, issuer: Buffer) => [
  subjectKeyIdentifier(keyIdentifierOf(publicKey)),
  authorityKeyIdentifier(issuer),
]

const validity = (now: Date, days: number) => ({
  notBefore: new Date(now.getTime() - CLOCK_SKEW_MS),
  notAfter: new Date(now.getTime() + days * DAY_MS),
})
