import type { KeyObject, X509Certificate } from 'node:crypto'
import { decodeUtf8 } from '../encoding/asn1.js'
import { InvalidX509 } from '../invalid-x509.js'
import { readPrivateKey } from '../private-key.js'
import { openBundle } from './bundle.js'
import { readIntermediates, readLeaf, readPemCertificates, requireName } from './certificates.js'
import { type Material, Unusable } from './material.js'
import { checkRevocationLists } from './revocation-lists.js'

/**
 * Checks that the material is what its reference should lead to. Slow: do not call it on the thread that answers
 * requests.
 * @returns what is wrong, as a clause that the caller may see, or null
 */
export function inspect(material: Material): string | null {
  try {
    check(material)
    return null
  } catch (error) {
    if (error instanceof Unusable) return error.message
    if (error instanceof InvalidX509) return clause(error.message)
    throw error
  }
}

function check(material: Material): void {
  switch (material.kind) {
    case 'bundle': {
      const { certificates, privateKey } = openBundle(material.bundle)
      if (certificates.length === 0) throw new Unusable('the PKCS#12 bundle holds no certificate')
      const leaf = certificates.find(certificate => belongsTo(privateKey, certificate))
      if (leaf === undefined) throw new Unusable('the private key belongs to none of its certificates')
      requireName(leaf)
      break
    }
    case 'certificate': {
      const { certificate, privateKey, intermediates, passphrase } = material
      const leaf = readLeaf(certificate)
      const key = readPrivateKey(Buffer.from(privateKey), passphrase === null ? null : decodePassphrase(passphrase))
      if (!belongsTo(key, leaf)) throw new Unusable('the private key does not belong to the certificate')
      if (intermediates !== null) readIntermediates(intermediates)
      requireName(leaf)
      break
    }
    case 'authority':
      readPemCertificates(material.authority, 'CA certificate')
      break
    case 'revocation list':
      checkRevocationLists(material.list, readAuthorities(material.authority))
  }
}

/** Null when they cannot be read; their own check reports why. */
function readAuthorities(bytes: Uint8Array | null): readonly X509Certificate[] | null {
  try {
    return bytes === null ? null : readPemCertificates(bytes, 'CA certificate')
  } catch (error) {
    if (error instanceof Unusable) return null
    throw error
  }
}

const belongsTo = (key: KeyObject, certificate: X509Certificate): boolean => certificate.checkPrivateKey(key)

function decodePassphrase(bytes: Uint8Array): string {
  const text = decodeUtf8(Buffer.from(bytes))
  if (text === null) throw new Unusable('the passphrase of the private key is not UTF-8 text')
  return text
}

/** A sentence as a clause. */
const clause = (sentence: string): string => sentence.charAt(0).toLowerCase() + sentence.slice(1).replace(/\.$/, '')
