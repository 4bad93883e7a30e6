import type { Configuration } from '../../config/schema.js'
import { type AuthorityFiles, issueServerCertificate, loadApiAuthority, renewalTime } from './authority.js'
import { serverNames, thisMachine } from './names.js'
import type { CertificateOrigin } from './origin.js'

/**
 * Certificates that this process issues to itself, a new one at two thirds of the life of the last and when the names
 * change. Their keys are in no file.
 * @throws ConfigurationError when the CA's key cannot be used
 */
export function certificateFromAuthority(
  files: AuthorityFiles,
  config: Configuration,
  { now = () => new Date(), machine = thisMachine } = {},
): CertificateOrigin {
  let renewAt = new Date(0)
  let issuedFor = ''
  const issue = () => {
    const names = serverNames(config, machine())
    const certificate = issueServerCertificate(loadApiAuthority(files, now()), names, now())
    const [notBefore, notAfter] = [certificate.leaf.validFrom, certificate.leaf.validTo].map(text => new Date(text))
    if (notBefore === undefined || notAfter === undefined) throw new Error('a certificate without validity')
    renewAt = renewalTime({ notBefore, notAfter })
    issuedFor = JSON.stringify(names)
    return certificate
  }
  return {
    what: 'the APIs’ own CA',
    first: issue(),
    newer: async () => {
      const isSame = JSON.stringify(serverNames(config, machine())) === issuedFor
      return isSame && now() < renewAt ? null : issue()
    },
    intervalSeconds: 60,
    expires: false,
  }
}
