import { lstatSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { SSHD_PID_FILE } from '../../../amphora-agent/protocol/paths.js'
import { seccompLauncher } from '../../../amphora-agent/seccomp/launcher.js'
import { MACHINE_RULES } from '../../../amphora-agent/seccomp/rules.js'
import type { BootData } from '../host/boot-data.js'
import { type AccountRange, accountWords, startHolder } from '../host/holder.js'
import type { MachineDirectory } from '../host/machine-directory.js'
import { sourceFolder } from '../source-folder.js'

const SSHD_LIMIT_MS = 3_000

/**
 * Starts a machine in namespaces. Returns once its own process 1 has started.
 * @throws MachineError with the machine's last output
 */
export async function startMachine(options: {
  directory: MachineDirectory
  /** A process in the user and network namespaces of the machine. */
  keeper: number
  /** The root file system whose /usr it shares; null: the host's. */
  imageRoot: string | null
  node: string
  agentBundle: string
  bootData: BootData
  accounts: AccountRange
  /** Where to start searching for free accounts; any number. */
  accountHint: number
  /** Directories of the machine's control groups. */
  groups: readonly string[]
}): Promise<void> {
  const { directory, keeper, imageRoot, node, agentBundle, bootData, accounts, accountHint, groups } = options
  // Looked up here: listing and deleting machines must not need the sources.
  const script = join(sourceFolder('controller/compute/namespace/machine'), 'start.sh')
  const programs = [sourceFolder('images/amphora'), imageRoot ?? '', node, agentBundle]
  const words = [directory.path, `${keeper}`, ...programs, ...accountWords(accounts, accountHint), ...groups]
  // furnish.sh expects these names.
  const files = { ...bootData, seccomp: seccompLauncher(MACHINE_RULES, process.arch) }
  await startHolder(directory, [script, ...words], files)
}

/**
 * Waits for the pid file of the machine's sshd, which sshd writes once it listens. Polling the socket table
 * instead would keep a processor busy, because the kernel walks the sockets of the whole host.
 * @returns false on timeout
 */
export async function sshdListens(holder: number): Promise<boolean> {
  const file = `/proc/${holder}/root${SSHD_PID_FILE}`
  for (const until = performance.now() + SSHD_LIMIT_MS; performance.now() < until; await wait(10)) {
    if (isFile(file)) return true
  }
  return false
}

/** Follows no link, because the machine could have created it. */
const isFile = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false })?.isFile() ?? false
