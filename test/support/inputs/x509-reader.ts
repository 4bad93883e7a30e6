import { readFileSync } from 'node:fs'
import { readCertificateRequest } from '../../../x509/certificate-request.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import { readPrivateKey } from '../../../x509/private-key.js'

/** Input to read as if a tenant had sent it, with its bytes in base64. */
export type ToRead = { name: string; as: 'request' | 'private key' | 'subject'; base64: string }

/**
 * The result: `outcome` is the refusal, or `accepted`; time is CPU time, memory is the process's peak so far,
 * in megabytes.
 */
export type WasRead = { name: string; outcome: string; milliseconds: number; megabytes: number }

/** A process that reads a list of ToRead from standard input, and prints a WasRead for each at once. */
for (const { name, as, base64 } of JSON.parse(readFileSync(0, 'utf8')) as ToRead[]) {
  const bytes = Buffer.from(base64, 'base64')
  const before = process.cpuUsage()
  const outcome = outcomeOf(as, bytes)
  const { user, system } = process.cpuUsage(before)
  const milliseconds = (user + system) / 1000
  const read: WasRead = { name, outcome, milliseconds, megabytes: process.resourceUsage().maxRSS / 1024 }
  console.log(JSON.stringify(read))
}

function outcomeOf(as: ToRead['as'], bytes: Buffer): string {
  try {
    if (as === 'request') readCertificateRequest(bytes)
    else if (as === 'private key') readPrivateKey(bytes, 'hush')
    else parseDistinguishedName(bytes.toString())
    return 'accepted'
  } catch (error) {
    return String(error)
  }
}
