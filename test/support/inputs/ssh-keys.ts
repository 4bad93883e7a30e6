import { randomBytes, randomUUID } from 'node:crypto'
import { amphoraIdentity, opensshPublicLine } from '../../../controller/compute/amphora-identity.js'

/**
 * A new ed25519 key pair in OpenSSH's formats. (A pair that ssh2 creates cannot be read when its public key
 * begins with a zero byte.)
 */
export function newSshKeyPair(): { private: string; public: string } {
  const { sshHostKeyPrivate, sshHostKeyPublic } = amphoraIdentity(randomBytes(32), randomUUID())
  return { private: sshHostKeyPrivate, public: opensshPublicLine(sshHostKeyPublic) }
}
