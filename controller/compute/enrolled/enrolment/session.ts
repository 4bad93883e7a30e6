import { createHash, timingSafeEqual } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import ssh2, { type AnyAuthMethod, type Client, type ClientChannel } from 'ssh2'
import { EnrolmentError } from './enrolment-error.js'

export type SshDestination = { user: string; host: string; port: number }

/** How an operator proves who they are: private keys in OpenSSH's format, the socket of an agent, or both. */
export type SshIdentity = { privateKeys: readonly Buffer[]; agent: string | null }

/** What a program on the host printed, and its exit status. */
export type Ran = { status: number; stdout: string; stderr: string }

const CONNECT_MS = 15_000
const KEEPALIVE_MS = 5_000
/** An sshd that reads its settings anew, as at the end of an enrolment, takes no connections for a moment. */
const RELOAD_MS = 5_000
const AGAIN_MS = 200
const MAX_OUTPUT = 4 * 1024 * 1024
/** One key is pinned: that which the connections to the agent ask for too. */
const HOST_KEYS = { serverHostKey: ['ssh-ed25519' as const] }

/** As `ssh-keygen -l` shows it. */
export const fingerprintOf = (hostKey: Buffer): string =>
  `SHA256:${createHash('sha256').update(hostKey).digest('base64').replaceAll('=', '')}`

/**
 * Asks a host for its key, without logging in.
 * @returns in SSH wire format
 * @throws EnrolmentError
 */
export function readHostKey({ host, port }: SshDestination): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const client = new ssh2.Client()
    const timer = setTimeout(() => fail('it does not answer'), CONNECT_MS)
    const fail = (why: string) => {
      clearTimeout(timer)
      client.destroy()
      reject(new EnrolmentError(`${host} has no SSH server on port ${port} that can be used: ${why}.`))
    }
    client.on('error', error => fail(error.message))
    client.on('close', () => fail('it closes the connection'))
    client.connect({
      host,
      port,
      username: 'krater',
      readyTimeout: 0,
      algorithms: HOST_KEYS,
      hostVerifier: (key: Buffer) => {
        clearTimeout(timer)
        client.removeAllListeners('error').removeAllListeners('close')
        client.on('error', () => undefined)
        client.destroy()
        resolve(Buffer.from(key))
        return false
      },
    })
  })
}

/** Whether nothing listens, or a connection ends before it begins, as while an sshd reads its settings anew. */
function isReloading(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false
  const { code } = cause as NodeJS.ErrnoException
  return code === 'ECONNREFUSED' || code === 'ECONNRESET' || /before handshake/.test(cause.message)
}

/**
 * A login on a host, whose commands are constants: data reaches them by their standard input only, so nothing is ever
 * part of a command line.
 */
export class HostSession {
  readonly #client: Client
  /** What puts root in front of a command; empty for root. */
  #asRoot = ''

  private constructor(client: Client) {
    this.#client = client
  }

  /**
   * Logs in, if the host presents the key.
   * @throws EnrolmentError
   */
  static async open(destination: SshDestination, hostKey: Buffer, identity: SshIdentity): Promise<HostSession> {
    for (const end = performance.now() + RELOAD_MS; ; await sleep(AGAIN_MS)) {
      try {
        return await HostSession.#logIn(destination, hostKey, identity)
      } catch (error) {
        if (!(error instanceof Error && isReloading(error.cause)) || performance.now() > end) throw error
      }
    }
  }

  static #logIn(destination: SshDestination, hostKey: Buffer, identity: SshIdentity): Promise<HostSession> {
    const { user, host, port } = destination
    return new Promise((resolve, reject) => {
      const client = new ssh2.Client()
      let isOther = false
      const timer = setTimeout(() => fail(`${host} does not answer on port ${port}.`), CONNECT_MS)
      const fail = (message: string, cause?: Error) => {
        clearTimeout(timer)
        client.destroy()
        reject(new EnrolmentError(message, { cause }))
      }
      client.on('error', error => {
        if (isOther) return fail(`${host} shows another host key than the one that was expected.`)
        const isRefused = 'level' in error && error.level === 'client-authentication'
        fail(
          isRefused
            ? `${host} accepts none of the keys of ${user}. Name another one with --identity.`
            : `${host}: ${error.message}`,
          error,
        )
      })
      client.once('ready', () => {
        clearTimeout(timer)
        client.removeAllListeners('error')
        client.on('error', () => undefined)
        resolve(new HostSession(client))
      })
      client.connect({
        host,
        port,
        username: user,
        readyTimeout: 0,
        keepaliveInterval: KEEPALIVE_MS,
        keepaliveCountMax: 3,
        algorithms: HOST_KEYS,
        hostVerifier: (key: Buffer) => {
          isOther = key.length !== hostKey.length || !timingSafeEqual(key, hostKey)
          return !isOther
        },
        authHandler: methodsOf(user, identity),
      })
    })
  }

  /**
   * Finds out how to become root.
   * @throws EnrolmentError if there is no way that needs no password
   */
  async becomeRoot(user: string): Promise<void> {
    for (const prefix of ['', 'sudo -n -- ']) {
      const { status, stdout } = await this.#run(`${prefix}/usr/bin/id -u`, '', 20_000)
      if (status !== 0 || stdout.trim() !== '0') continue
      this.#asRoot = prefix
      return
    }
    throw new EnrolmentError(
      `${user} is not root on this host, and sudo does not work without a password. Nothing was changed there.`,
    )
  }

  /** The addresses of both ends, as the host sees them. @throws EnrolmentError */
  async ends(): Promise<{ controller: string; host: string }> {
    const { stdout } = await this.#run('printenv SSH_CONNECTION', '', 20_000)
    const [controller = '', , host = ''] = stdout.trim().split(' ')
    if (/^[0-9a-f.:]+$/.test(controller) && /^[0-9a-f.:]+$/.test(host)) return { controller, host }
    throw new EnrolmentError('The host does not say from which address this controller reaches it.')
  }

  /** Runs a script as root. @param input what the script reads from its standard input */
  runScript(script: string, input: string, timeoutMs: number): Promise<Ran> {
    return this.#run(`${this.#asRoot}/bin/bash -s`, script + input, timeoutMs)
  }

  /** Writes a local file to one of these places on the host, as root. @throws EnrolmentError */
  async upload(path: string, place: Upload, timeoutMs: number): Promise<void> {
    const command = `${this.#asRoot}/bin/bash -c '${UPLOADS[place]}'`
    const { status, stderr } = await this.#within(timeoutMs, command, channel => {
      pipeline(createReadStream(path), channel.stdin).catch(() => undefined)
    })
    if (status !== 0) throw new EnrolmentError(`A file could not be written to the host: ${stderr.trim()}`)
  }

  close(): void {
    this.#client.destroy()
  }

  #run(command: string, input: string, timeoutMs: number): Promise<Ran> {
    return this.#within(timeoutMs, command, channel => {
      channel.stdin.on('error', () => undefined)
      channel.stdin.end(input)
    })
  }

  /**
   * Runs a command. After the time limit the connection ends, and so does every wait for it: a host may answer not even
   * that it closes a channel.
   * @param feed gives the command its input
   */
  #within(timeoutMs: number, command: string, feed: (channel: ClientChannel) => void): Promise<Ran> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new EnrolmentError(`A command on the host did not end within ${timeoutMs / 1000} s.`))
        this.#client.destroy()
      }, timeoutMs)
      this.#client.exec(command, (error, channel) => {
        if (error) {
          clearTimeout(timer)
          reject(new EnrolmentError(`The host runs no command: ${error.message}`))
          return
        }
        // At once: the host's answer may have come together with the end of the command.
        collect(channel)
          .then(resolve, reject)
          .finally(() => clearTimeout(timer))
        feed(channel)
      })
    })
  }
}

/** install.sh takes them from there. */
const UPLOADS = {
  node: 'umask 077; cat >/var/lib/krater-host/incoming/node',
  'agent.mjs': 'umask 077; cat >/var/lib/krater-host/incoming/agent.mjs',
} as const

export type Upload = keyof typeof UPLOADS

function methodsOf(username: string, { privateKeys, agent }: SshIdentity): AnyAuthMethod[] {
  return [
    ...privateKeys.map(key => ({ type: 'publickey' as const, username, key })),
    ...(agent === null ? [] : [{ type: 'agent' as const, username, agent }]),
  ]
}

/** Waits for the end of a program. */
function collect(channel: ClientChannel): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const ran = { stdout: '', stderr: '' }
    let status: number | null = null
    channel.setEncoding('utf8').on('data', (piece: string) => {
      ran.stdout = (ran.stdout + piece).slice(-MAX_OUTPUT)
    })
    channel.stderr.setEncoding('utf8').on('data', (piece: string) => {
      ran.stderr = (ran.stderr + piece).slice(-MAX_OUTPUT)
    })
    channel.on('exit', (code: number | null) => {
      status = code
    })
    channel.on('close', () => {
      if (status === null) reject(new EnrolmentError('The connection to the host was lost.'))
      else resolve({ status, ...ran })
    })
  })
}
