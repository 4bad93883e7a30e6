import { execFile } from 'node:child_process'
import { lookup } from 'node:dns/promises'
import { existsSync, readFileSync } from 'node:fs'
import { isIPv6 } from 'node:net'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { InvalidArgumentError } from 'commander'
import ssh2 from 'ssh2'
import type { SshDestination, SshIdentity } from '../../../../compute/enrolled/enrolment/session.js'
import { OperatorError } from '../../../operator-error.js'

const run = promisify(execFile)

/** `USER@HOST`, `USER@HOST:PORT` or `USER@[IPV6]:PORT`. */
export function parseDestination(text: string): SshDestination {
  const [, user, bracketed, plain, port] =
    /^([a-z_][a-z0-9_-]{0,31})@(?:\[([0-9a-f:.]+)\]|([A-Za-z0-9][A-Za-z0-9.-]*|[0-9a-f:]+))(?::(\d{1,5}))?$/.exec(
      text,
    ) ?? []
  const host = bracketed ?? plain
  const number = Number(port ?? 22)
  if (user !== undefined && host !== undefined && number >= 1 && number <= 65_535) return { user, host, port: number }
  throw new InvalidArgumentError('It must be USER@HOST or USER@HOST:PORT; an IPv6 address needs brackets.')
}

/** As in SSH's files: other ports than 22 are part of the name. */
const nameInFiles = ({ host, port }: SshDestination): string => (port === 22 ? host : `[${host}]:${port}`)

/** The destination with its address in place of the name. @throws OperatorError */
export async function withAddress(destination: SshDestination): Promise<SshDestination> {
  const { address } = await lookup(destination.host).catch(() => {
    throw new OperatorError(`${destination.host} has no address.`)
  })
  return { ...destination, host: address }
}

/** The host keys that the operator's own SSH client knows for a host, in SSH wire format. */
export async function knownHostKeys(destination: SshDestination): Promise<Buffer[]> {
  const { stdout } = await run('ssh-keygen', ['-F', nameInFiles(destination)], { timeout: 10_000 }).catch(() => ({
    stdout: '',
  }))
  return stdout.split('\n').flatMap(line => {
    const [, , type, key] = line.startsWith('@') ? [] : ['', ...line.split(' ')]
    return type === 'ssh-ed25519' && key !== undefined ? [Buffer.from(key, 'base64')] : []
  })
}

const OWN_KEYS = ['id_ed25519', 'id_ecdsa', 'id_rsa']

/**
 * The keys to log in with: the one that is named, or those that the operator's own SSH client would use.
 * @throws OperatorError if the named one cannot be used
 */
export function identityOf(file: string | undefined): SshIdentity {
  if (file !== undefined) return { privateKeys: [readKey(file)], agent: null }
  const files = OWN_KEYS.map(name => join(homedir(), '.ssh', name)).filter(path => existsSync(path))
  const usable = files.map(path => readFileSync(path)).filter(key => !(ssh2.utils.parseKey(key) instanceof Error))
  return { privateKeys: usable, agent: process.env.SSH_AUTH_SOCK ?? null }
}

function readKey(file: string): Buffer {
  let key: Buffer
  try {
    key = readFileSync(file)
  } catch (error) {
    throw new OperatorError(`The private key ${file} cannot be read (${(error as NodeJS.ErrnoException).code}).`)
  }
  const parsed = ssh2.utils.parseKey(key)
  if (!(parsed instanceof Error)) return key
  throw new OperatorError(
    `The private key ${file} cannot be used: ${parsed.message}. With a passphrase, add it to ssh-agent and leave --identity out.`,
  )
}

export const textOf = ({ user, host, port }: SshDestination): string =>
  `${user}@${isIPv6(host) ? `[${host}]` : host}${port === 22 ? '' : `:${port}`}`
