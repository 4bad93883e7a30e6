import { type StdioOptions, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { amphoraIdentity, opensshPublicLine } from '../../../compute/amphora-identity.js'
import { withTemporaryDirectory } from '../../../process/temporary-directory.js'
import { keyFiles, loadAmphoraMaster } from '../../state-directory/keys.js'
import type { Instance } from '../../wiring/instance.js'
import { enrolledHostOf } from './enrolled/host-of-amphora.js'

export type SshTarget = { amphoraId: string; address: string }

/** The amphora's network on an enrolled host; see compute/enrolled/host/host.sh. */
const ON_ENROLLED_HOST = 'nsenter --net=/run/netns/krater-amphora --'

/**
 * Runs OpenSSH's client with the operators' key and the amphora's pinned host key, without trust on first use. On an
 * enrolled host, in the network of its amphora.
 * @param command words for the remote shell; an interactive shell when empty
 * @param output inherits the caller's streams, or collects what it prints as text
 * @returns its exit status, and what it printed when collected
 */
export async function operatorSsh(
  instance: Instance,
  { amphoraId, address }: SshTarget,
  command: readonly string[],
  output: 'inherit' | 'text',
): Promise<{ status: number; text: string }> {
  const { config, directory } = instance
  const files = keyFiles(config, directory)
  const host = await enrolledHostOf(instance, amphoraId)
  const pin = host?.hostKey ?? amphoraIdentity(loadAmphoraMaster(files), amphoraId).sshHostKeyPublic
  const words = host === null ? command : wordsOnHost(host.login, command)
  return withTemporaryDirectory(join(directory, 'run', 'ssh-'), async temporary => {
    const knownHosts = join(temporary, 'known_hosts')
    writeFileSync(knownHosts, `${amphoraId} ${opensshPublicLine(pin)}\n`, { mode: 0o600 })
    const options = [
      `HostKeyAlias=${amphoraId}`,
      `UserKnownHostsFile=${knownHosts}`,
      'GlobalKnownHostsFile=/dev/null',
      'StrictHostKeyChecking=yes',
      'IdentitiesOnly=yes',
      'IdentityAgent=none',
      'PasswordAuthentication=no',
      'ConnectTimeout=10',
      'ServerAliveInterval=15',
      'LogLevel=ERROR',
    ]
    // The user's ssh_config must not redirect this connection.
    const args = [
      '-F',
      'none',
      '-i',
      files.operatorSsh,
      ...options.flatMap(option => ['-o', option]),
      '-p',
      `${host?.port ?? 22}`,
      ...(words === command || command.length > 0 ? [] : ['-t']),
      `${host?.login ?? 'root'}@${host?.address ?? address}`,
    ]
    return await run('ssh', [...args, ...(words.length > 0 ? ['--', ...words] : [])], output)
  })
}

/** What an operator's login runs on an enrolled host to be root in the network of its amphora. */
function wordsOnHost(login: string, command: readonly string[]): string[] {
  const become = login === 'root' ? [] : ['sudo', '-n', '--']
  // The remote shell splits words, and another shell reads the command.
  const quoted = `'${command.join(' ').replaceAll("'", `'\\''`)}'`
  return [...become, ON_ENROLLED_HOST, '/bin/bash', ...(command.length === 0 ? ['-l'] : ['-c', quoted])]
}

function run(program: string, args: string[], output: 'inherit' | 'text'): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const piped = output === 'text'
    const stdio: StdioOptions = piped ? ['ignore', 'pipe', 'pipe'] : 'inherit'
    const child = spawn(program, args, { stdio })
    const limit = piped ? setTimeout(() => child.kill('SIGTERM'), 30_000) : undefined
    let text = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', chunk => {
        text = `${text}${chunk}`.slice(-4_000_000)
      })
    }
    child.on('error', reject)
    child.on('close', code => {
      clearTimeout(limit)
      resolve({ status: code ?? 1, text })
    })
  })
}
