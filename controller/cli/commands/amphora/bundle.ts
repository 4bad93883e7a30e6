import { execFile } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { withTemporaryDirectory } from '../../../process/temporary-directory.js'
import { writeOutput } from '../../host/output-file.js'
import { table } from '../../terminal.js'
import type { Instance } from '../../wiring/instance.js'
import { withAgents } from './agents.js'
import { consoleOf } from './console.js'
import { describeAmphora } from './describe.js'
import { operatorSsh } from './operator-ssh.js'
import type { AmphoraRow } from './rows.js'

const run = promisify(execFile)

/** Files of the bundle, and the commands that produce them on the amphora. None may reveal keys or passwords. */
const COMMANDS: Readonly<Record<string, string>> = {
  'addresses.txt': 'ip -details address',
  'routes.txt': 'ip rule; ip route show table all; ip -6 route show table all',
  'sockets.txt': 'ss -tulpn; ss -s',
  'processes.txt': 'ps auxww',
  'nftables.txt': 'nft list ruleset',
  'flows.txt': 'conntrack -C; conntrack -S',
  'haproxy.cfg': 'cat /run/krater/config/current/haproxy.cfg',
  'keepalived.conf': 'cat /run/krater/config/current/keepalived.conf',
  'haproxy-info.txt':
    // Perl is on every amphora; programs for sockets are not.
    `perl -MIO::Socket::UNIX -e 'alarm 5; my $s = IO::Socket::UNIX->new("/run/krater/haproxy.sock") or die "$!\\n"; print $s "show info; show stat; show servers state\\n"; print while <$s>'`,
  'mounts.txt': 'cat /proc/mounts; df -h',
}

/**
 * Packs what is needed to diagnose a fault into one .tar.gz, with an error in place of what is unavailable.
 * @returns its path
 */
export async function writeSupportBundle(instance: Instance, row: AmphoraRow, output: string): Promise<string> {
  const path = resolve(output)
  const name = `amphora-${row.id}`
  // The bundle reveals much about a tenant, and others may be able to read the folder.
  await writeOutput(path, unfinished =>
    withTemporaryDirectory(join(instance.directory, 'run', 'bundle-'), async temporary => {
      const folder = join(temporary, name)
      mkdirSync(folder)
      const put = (file: string, text: string) => writeFileSync(join(folder, file), text, { mode: 0o600 })
      put('amphora.txt', `${table(await describeAmphora(instance, row)).join('\n')}\n`)
      const console = await consoleOf(instance.directory, row.id)
      if (console !== null) put('console.txt', console)
      const { address } = row
      if (address !== null) {
        const logs = await withAgents(instance, agents => agents.logs(row.id, address, 5000)).catch((error: Error) => [
          `The logs are unavailable: ${error.message}`,
        ])
        put('logs.txt', `${logs.join('\n')}\n`)
        for (const [file, command] of Object.entries(COMMANDS)) {
          const { status, text } = await operatorSsh(
            instance,
            { amphoraId: row.id, address },
            [`(${command}) 2>&1`],
            'text',
          )
          put(file, status === 0 ? text : `${text}\n(${command}: exit status ${status})\n`)
        }
      }
      await run('tar', ['-C', temporary, '-czf', unfinished, name], { timeout: 60_000 })
    }),
  )
  return path
}
