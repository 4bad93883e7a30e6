import { type StdioOptions, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { amphoraIdentity, opensshPublicLine } from '../../../compute/amphora-identity.js'
import { withTemporaryDirectory } from '../../../process/temporary-directory.js'
import { keyFiles, loadAmphoraMaster } from '../../state-directory/keys.js'
import type { Instance } from '../../wiring/instance.js'

export type SshTarget = { amphoraId: string; address: string }

/**
 * Runs OpenSSH's client with the operators' key and the amphora's pinned host key, without trust on first use.
 * @param command words for the remote shell; an interactive shell when empty
 * @param output inherits the caller's streams, or collects what it prints as text
 * @returns its exit status, and what it printed when collected
 */
export async function operatorSsh(
  { config, directory }: Instance,
  { amphoraId, address }: SshTarget,
  command: readonly string[],
  output: 'inherit' | 'text',
): Promise<{ status: number; text: string }> {
  const files = keyFiles(config, directory)
  const pin = amphoraIdentity(loadAmphoraMaster(files), amphoraId).sshHostKeyPublic
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
      `root@${address}`,
    ]
    return await run('ssh', [...args, ...(command.length > 0 ? ['--', ...command] : [])], output)
  })
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
