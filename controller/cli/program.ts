import { Command, CommanderError, InvalidArgumentError } from 'commander'
import { stateDirectory } from '../config/load.js'
import { unknownVariables } from '../config/settings.js'
import manifest from '../package.json' with { type: 'json' }
import type { ExportOptions } from './commands/key-manager/audit.js'
import type { CleanOptions } from './commands/key-manager/clean.js'
import type { RotateMasterKeyOptions } from './commands/key-manager/rotate-master-key.js'
import type { RotateProjectKeysOptions } from './commands/key-manager/rotate-project-keys.js'
import { explain } from './operator-error.js'
import type { ApiName } from './processes/api.js'

const MOST_DAYS = 36_500
const API_NAMES: readonly ApiName[] = ['identity', 'network', 'load-balancer', 'key-manager']

const EXAMPLES = `
Examples:
  npx krater up                       everything on this machine, in the foreground until Ctrl-C
  npx krater up --detach              the same in the background
  npx krater demo                     a load balancer with two web servers behind it, to look at
  npx krater doctor                   what is wrong, and what to do about it
  npx krater amphora list             the machines that carry the load balancers
  npx krater down                     stop the controllers; amphorae keep serving
  npx krater down --all               remove everything that was made

  KRATER_STATE_DIR=/srv/krater KRATER_IDENTITY_PORT=5001 npx krater up

Settings stand in krater.yaml in the state directory; each has an environment variable of its path:
network.driver is KRATER_NETWORK_DRIVER. \`krater settings\` lists them.`

/**
 * Runs one command line.
 * @returns the exit status: 0 done, 1 a failure that was told, 2 a command line that is not understood
 */
export async function runCommandLine(argv: readonly string[]): Promise<number> {
  const { program, status } = createProgram()
  try {
    await program.parseAsync([...argv], { from: 'user' })
    return status()
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
    const { text, exitStatus } = explain(error)
    process.stderr.write(`${text}\n`)
    return exitStatus
  }
}

function createProgram(): { program: Command; status: () => number } {
  let status = 0
  const program = new Command('krater')
    .description('Load balancers and TLS keys that you run yourself')
    .version(manifest.version)
    .option(
      '--state-dir <directory>',
      'where everything of this instance stands (default: KRATER_STATE_DIR, else /var/lib/krater)',
    )
    .showSuggestionAfterError()
    .showHelpAfterError('(krater --help shows what there is)')
    .exitOverride()
    .addHelpText('after', EXAMPLES)
    .hook('preAction', () => {
      for (const name of unknownVariables(process.env)) {
        process.stderr.write(`${name} is set, but there is no such setting.\n`)
      }
    })
  const directory = () => stateDirectory(program.opts<{ stateDir?: string }>().stateDir, process.env)

  program
    .command('up')
    .description('start everything on this machine: PostgreSQL, the APIs, workers, health manager')
    .option('--detach', 'in the background, once it works')
    .action(async (options: { detach?: boolean }) => {
      if (options.detach) await (await import('./commands/up/detach.js')).startInBackground(directory())
      else await (await import('./commands/up/up.js')).up(directory())
    })

  program
    .command('down')
    .description('stop the controllers; amphorae keep serving')
    .option('--all', 'remove everything that was made: amphorae, networks, database, files')
    .option('--yes', 'do not ask')
    .action(async (options: { all?: boolean; yes?: boolean }) => {
      const { down, removeEverything } = await import('./commands/down.js')
      if (options.all) await removeEverything(directory(), { confirmed: options.yes ?? false })
      else await down(directory())
    })

  program
    .command('demo')
    .description('start it when it does not run, put two web servers behind a load balancer, and send requests')
    .action(async () => (await import('./commands/demo/demo.js')).demo(directory()))

  program
    .command('doctor')
    .description('check packages, kernel, ports, clock, database, heartbeats and amphorae')
    .action(async () => {
      status = await (await import('./commands/doctor/doctor.js')).doctor(directory())
    })

  program
    .command('settings')
    .description('every setting, with its default, its meaning and its environment variable')
    .action(async () => (await import('./commands/settings.js')).printSettings())

  program
    .command('api')
    .description('the APIs alone, until SIGTERM')
    .option('--only <names>', `some of them, with commas between: ${API_NAMES.join(',')}`, parseApiNames)
    .action(async (options: { only?: ApiName[] }) =>
      (await import('./processes/api.js')).runApi(directory(), options.only ?? API_NAMES),
    )
  program
    .command('worker')
    .description('one worker alone, until SIGTERM')
    .action(async () => (await import('./processes/worker.js')).runWorker(directory()))
  program
    .command('health-manager')
    .description('one health manager alone, until SIGTERM')
    .action(async () => (await import('./processes/health-manager.js')).runHealthManager(directory()))
  program
    .command('keystone-listener')
    .description('one listener for projects that an external identity service deletes, until SIGTERM')
    .action(async () => (await import('./processes/keystone-listener.js')).runKeystoneListener(directory()))

  const keyManager = program.command('key-manager').description('secrets, their keys and what watches over them')
  keyManager
    .command('worker')
    .description('one worker of the key manager alone, until SIGTERM')
    .action(async () => (await import('./processes/key-manager-worker.js')).runKeyManagerWorker(directory()))
  keyManager
    .command('sync-projects')
    .option('--yes', 'erase what is held for them')
    .option('--force', 'also when most projects are missing')
    .description('find projects that the identity service has no more, and erase what is held for them')
    .action(async (options: { yes?: boolean; force?: boolean }) =>
      (await import('./commands/key-manager/sync-projects.js')).syncProjects(directory(), options),
    )

  keyManager
    .command('clean')
    .option('--min-days <n>', 'what was deleted longer ago than this (default: the setting)', parseDays)
    .option('--expired', 'also delete secrets that are past their time')
    .option('--unused-projects', 'also remove the keys of projects that have nothing any more')
    .option('--dry-run', 'only say how much it would be')
    .description('purge what is left of deleted objects, and audit records past their retention')
    .action(async (options: CleanOptions) =>
      (await import('./commands/key-manager/clean.js')).cleanKeyManager(directory(), options),
    )

  const audit = keyManager.command('audit').description('the record of who used which secret')
  audit
    .command('verify')
    .option('--noted <position:hash>', 'what an earlier check printed: it must still be there')
    .description('check that no record was changed, put in or taken away')
    .action(async (options: { noted?: string }) => {
      status = await (await import('./commands/key-manager/audit.js')).verifyAuditLog(directory(), options.noted)
    })
  audit
    .command('accept')
    .description('after a restore: take the chain as it is, whatever this machine kept of its end')
    .action(async () => (await import('./commands/key-manager/audit.js')).acceptAuditLog(directory()))
  audit
    .command('export')
    .option('--from <time>', 'records of this time and later')
    .option('--until <time>', 'records before this time')
    .option('--project <id>', 'what callers in this project did')
    .option('--output <file>', 'a file instead of standard output')
    .description('the records as lines of JSON')
    .action(async (options: ExportOptions) =>
      (await import('./commands/key-manager/audit.js')).exportAuditLog(directory(), options),
    )

  keyManager
    .command('rotate-master-key')
    .option('--backend <name>', 'simple or pkcs11 (default: the first of those in use)', parseBackend)
    .option('--label <label>', 'of the new key in a token')
    .option('--prepare', 'only put the new key into the file, to copy it to other machines first')
    .description('replace the key that wraps the keys of projects, while all goes on being used')
    .action(async (options: RotateMasterKeyOptions) => {
      status = await (await import('./commands/key-manager/rotate-master-key.js')).rotateMasterKeyNow(
        directory(),
        options,
      )
    })
  keyManager
    .command('rotate-project-keys')
    .option('--project <id>', 'of this project')
    .option('--all', 'of all projects, and the service itself')
    .description('replace keys of projects and encrypt anew what is stored, while all goes on being used')
    .action(async (options: RotateProjectKeysOptions) => {
      status = await (await import('./commands/key-manager/rotate-project-keys.js')).rotateProjectKeysNow(
        directory(),
        options,
      )
    })
  const ca = keyManager.command('ca').description('the certificate authorities')
  const authorities = () => import('./commands/key-manager/ca.js')
  ca.command('list')
    .description('all certificate authorities')
    .action(async () => (await authorities()).listAuthorities(directory()))
  ca.command('certificates')
    .argument('<ca>', 'id of the certificate authority')
    .description('what it has issued')
    .action(async (id: string) => (await authorities()).listCertificates(directory(), id))
  ca.command('revoke')
    .argument('<ca>', 'id of the certificate authority')
    .argument('<serial>', 'serial number of the certificate, in hexadecimal')
    .option('--reason <reason>', 'as keyCompromise or superseded', 'unspecified')
    .description('put a certificate on the revocation list, for good')
    .action(async (id: string, serial: string, { reason }: { reason: string }) =>
      (await authorities()).revokeIssued(directory(), { ca: id, serial, reason }),
    )
  const hsm = keyManager.command('hsm').description('the PKCS#11 token that holds the keys')
  hsm
    .command('create-master-key')
    .option('--label <label>', 'of the key (default: key_manager.crypto.pkcs11.master_key_label)')
    .description('make a master key in the token that never leaves it')
    .action(async (options: { label?: string }) =>
      (await import('./commands/key-manager/hsm.js')).createMasterKeyInToken(directory(), options.label),
    )
  hsm
    .command('check')
    .option('--label <label>', 'of the key (default: key_manager.crypto.pkcs11.master_key_label)')
    .description('show the attributes of the master key, and that it works')
    .action(async (options: { label?: string }) =>
      (await import('./commands/key-manager/hsm.js')).checkToken(directory(), options.label),
    )

  const db = program.command('db').description('the database')
  db.command('migrate')
    .description('make or update the tables, and what a first start needs')
    .action(async () => (await import('./commands/database-migrate.js')).migrateDatabase(directory()))

  const amphora = program
    .command('amphora')
    .description('the machines that carry the load balancers')
    .enablePositionalOptions()
  const commands = () => import('./commands/amphora/commands.js')
  amphora
    .command('list')
    .description('all amphorae')
    .action(async () => (await commands()).listAmphorae(directory()))
  amphora
    .command('show')
    .argument('<id>', 'id of the amphora, or how it begins')
    .description('its row, machine, heartbeats and agent')
    .action(async (id: string) => (await commands()).showAmphora(directory(), id))
  amphora
    .command('ssh')
    .argument('<id>', 'id of the amphora, or how it begins')
    .argument('[command...]', 'run this there instead of a shell')
    .passThroughOptions()
    .description('a root shell on it')
    .action(async (id: string, command: string[]) => {
      status = await (await commands()).sshToAmphora(directory(), id, command)
    })
  amphora
    .command('logs')
    .argument('<id>', 'id of the amphora, or how it begins')
    .option('--lines <n>', 'how many', parseCount, 200)
    .description('what its agent, HAProxy and keepalived have logged')
    .action(async (id: string, options: { lines: number }) =>
      (await commands()).amphoraLogs(directory(), id, options.lines),
    )
  amphora
    .command('support-bundle')
    .argument('<id>', 'id of the amphora, or how it begins')
    .option('--output <file>', 'a .tar.gz file (default: below the present directory)')
    .description('one file with all that is needed to understand a fault; no secrets')
    .action(async (id: string, options: { output?: string }) =>
      (await commands()).supportBundle(directory(), id, options.output),
    )

  return { program, status: () => status }
}

function parseApiNames(text: string): ApiName[] {
  const names = text.split(',').map(name => name.trim())
  const unknown = names.filter(name => !API_NAMES.some(known => known === name))
  if (unknown.length > 0) throw new InvalidArgumentError(`There is no API "${unknown.join(', ')}".`)
  return API_NAMES.filter(name => names.includes(name))
}

function parseBackend(text: string): 'simple' | 'pkcs11' {
  if (text === 'simple' || text === 'pkcs11') return text
  throw new InvalidArgumentError('It must be simple or pkcs11.')
}

function parseDays(text: string): number {
  const days = Number(text)
  if (!/^\d+$/.test(text) || days > MOST_DAYS) {
    throw new InvalidArgumentError(`It must be a whole number from 0 to ${MOST_DAYS}.`)
  }
  return days
}

function parseCount(text: string): number {
  const count = Number(text)
  if (!Number.isInteger(count) || count < 1 || count > 5000) {
    throw new InvalidArgumentError('It must be a whole number from 1 to 5000.')
  }
  return count
}
