import { CommanderError, Command as Program } from 'commander'
import { stateDirectory } from '../config/load.js'
import { unknownVariables } from '../config/settings.js'
import manifest from '../package.json' with { type: 'json' }
import type { Command } from './command.js'
import { commands, type Entry } from './commands.js'
import { explain } from './operator-error.js'

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
 * @returns the exit status: 0 success, 1 a failure that was printed, 2 an invalid command line
 */
export async function runCommandLine(argv: readonly string[]): Promise<number> {
  let status = 0
  const program = createProgram()
  const directory = () => stateDirectory(program.opts<{ stateDir?: string }>().stateDir, process.env)
  try {
    await addCommands(program, commands, argv, async (command, given) => {
      status = (await command.run(directory(), given)) ?? 0
    })
    await program.parseAsync([...argv], { from: 'user' })
    return status
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
    const { text, exitStatus } = explain(error)
    process.stderr.write(`${text}\n`)
    return exitStatus
  }
}

function createProgram(): Program {
  return new Program('krater')
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
}

type Run = (command: Command, given: Record<string, unknown>) => Promise<void>

/**
 * Adds commands to a group. A command is loaded just before its arguments are parsed. When no command of the group is named, or when `help`
 * is, the whole group is loaded, because help lists arguments and options.
 */
async function addCommands(
  group: Program,
  entries: readonly Entry[],
  argv: readonly string[],
  run: Run,
): Promise<void> {
  const isForHelp = argv.includes('help')
  const isOneNamed = entries.some(({ name }) => argv.includes(name))
  const prepare = new Map<Program, () => Promise<void>>()
  for (const entry of entries) {
    const program = group.command(entry.name).description(entry.summary)
    const isGroup = 'commands' in entry
    const load = isGroup
      ? () => addCommands(program.enablePositionalOptions(), entry.commands, argv, run)
      : async () => configure(program, (await entry.load()).command, run)
    if (isForHelp || !(isOneNamed || isGroup)) await load()
    else prepare.set(program, load)
  }
  group.hook('preSubcommand', (_group, program) => prepare.get(program)?.())
}

function configure(program: Program, command: Command, run: Run): void {
  for (const argument of command.arguments ?? []) program.addArgument(argument)
  for (const option of command.options ?? []) program.addOption(option)
  if (command.passThroughOptions === true) program.passThroughOptions()
  program.action(() => {
    const words = program.registeredArguments.map((argument, at) => [argument.name(), program.processedArgs[at]])
    return run(command, { ...program.opts(), ...Object.fromEntries(words) })
  })
}
