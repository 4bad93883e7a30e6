import { constants } from 'node:os'
import { CommanderError, InvalidArgumentError, Command as Program } from 'commander'
import { stateDirectory } from '../config/load.js'
import { namedVariables, unknownVariables } from '../config/unknown-variables.js'
import manifest from '../package.json' with { type: 'json' }
import type { Command } from './command.js'
import { commands, type Entry } from './commands.js'
import { explain } from './explain.js'
import { UsageError } from './operator-error.js'

const EXAMPLES = `
Examples:
  npx krater up                       run everything on this machine in the foreground; Ctrl-C stops it
  npx krater up --detach              run everything in the background
  npx krater demo                     create a sample load balancer with two web servers
  npx krater doctor                   find faults and print how to fix them
  npx krater amphora list             list the machines that carry the load balancers
  npx krater down                     stop the controllers; amphorae keep serving
  npx krater down --all               remove everything that Krater created

  A second instance beside the first needs its own directory and ports. The first start writes them to krater.yaml:
  KRATER_STATE_DIR=/srv/krater KRATER_IDENTITY_PORT=5001 KRATER_LOAD_BALANCER_PORT=9877 \\
    KRATER_NETWORK_PORT=9697 KRATER_KEY_MANAGER_PORT=9411 npx krater up

Settings are in krater.yaml in the state directory. Environment variables override them:
KRATER_NETWORK_DRIVER overrides network.driver. \`krater settings\` lists all settings.

Exit status:
  0    done; for a process such as krater up: stopped by a signal in the orderly way
  1    failed, or doctor, explain or verify found faults; one sentence says why and what to do
  2    the command line is wrong, or no setting has the name of a KRATER_ variable; nothing was done
  129, 130, 143   interrupted by SIGHUP, Ctrl-C or SIGTERM; the command can be run again
  Otherwise \`network exec\` and \`amphora ssh\` return the status of the program.`

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/**
 * Runs one command line.
 * @returns the exit status, as the help lists it; a failure is already printed
 */
export async function runCommandLine(commandLine: readonly string[]): Promise<number> {
  const argv = endOptions(commandLine)
  let status = 0
  const program = createProgram()
  const directory = () => stateDirectory(program.opts<{ stateDir?: string }>().stateDir, process.env)
  try {
    // Answers --version before any command is loaded.
    const { operands } = program.parseOptions(argv)
    await addCommands(program, commands, operands, async (command, given) => {
      if (command.ignoresSettings !== true) requireKnownVariables(directory())
      endOnSignals()
      status = (await command.run(directory(), given)) ?? 0
    })
    await program.parseAsync(argv, { from: 'user' })
    return status
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2
    const { text, exitStatus } = explain(error, directory())
    process.stderr.write(`${text}\n`)
    return exitStatus
  }
}

/**
 * Puts `--` behind the first argument of a command that passes options through. Commander's own way to pass them would
 * forbid --state-dir behind the name of any command.
 */
function endOptions(commandLine: readonly string[]): string[] {
  const isValue = (at: number) => commandLine[at - 1] === '--state-dir'
  const words = [...commandLine.keys()].filter(at => !commandLine[at]?.startsWith('-') && !isValue(at))
  let entries = commands
  for (const [depth, at] of words.entries()) {
    const entry = entries.find(({ name }) => name === commandLine[at])
    if (entry === undefined) break
    if ('commands' in entry) {
      entries = entry.commands
      continue
    }
    const argument = words[depth + 1]
    if (entry.passThroughOptions !== true || argument === undefined) break
    const rest = commandLine.slice(argument + 1)
    return [...commandLine.slice(0, argument + 1), ...(rest[0] === '--' ? [] : ['--']), ...rest]
  }
  return [...commandLine]
}

/** @throws UsageError that names the unknown KRATER_ variables */
function requireKnownVariables(directory: string): void {
  if (unknownVariables(process.env).length === 0) return
  const unknown = unknownVariables(process.env, namedVariables(directory, process.env))
  if (unknown.length === 0) return
  const texts = unknown.map(
    ({ name, nearest }) => `${name} is no setting${nearest === null ? '' : ` (did you mean ${nearest}?)`}`,
  )
  throw new UsageError(`${texts.join('; ')}. Correct or unset it. \`krater settings\` lists all variables.`)
}

/** Ends a command that does not handle signals itself with a sentence, after its temporary files are removed. */
function endOnSignals(): void {
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      if (process.listenerCount(signal) > 1) return
      process.stderr.write('Interrupted. Run the same command again to finish.\n')
      process.exit(128 + constants.signals[signal])
    })
  }
}

function createProgram(): Program {
  return new Program('krater')
    .description('Load balancers and TLS keys that you run yourself')
    .version(manifest.version)
    .option(
      '--state-dir <directory>',
      'directory of all files of this instance (default: KRATER_STATE_DIR, else /var/lib/krater)',
      requireNotEmpty,
    )
    .showSuggestionAfterError()
    .showHelpAfterError('(krater --help lists all commands)')
    .exitOverride()
    .addHelpText('after', EXAMPLES)
}

/** Otherwise a script whose variable is not set would work on the default directory. */
function requireNotEmpty(path: string): string {
  if (path === '') throw new InvalidArgumentError('It is empty. Name a directory, or leave the option out.')
  return path
}

type Run = (command: Command, given: Record<string, unknown>) => Promise<void>

/**
 * Adds commands to a group. Loads a command just before its arguments are parsed. Loads the whole group if no
 * command of it is named, because help lists arguments and options.
 * @param operands words that are neither options nor values of options, from the command's name on
 */
async function addCommands(
  group: Program,
  entries: readonly Entry[],
  [named, ...operands]: readonly string[],
  run: Run,
): Promise<void> {
  const isOneNamed = entries.some(({ name }) => name === named)
  const prepare = new Map<Program, () => Promise<void>>()
  for (const entry of entries) {
    const isGroup = 'commands' in entry
    const isDefault = !isGroup && entry.isDefault === true
    const program = group.command(entry.name, { isDefault }).description(entry.summary)
    const load = isGroup
      ? () => addCommands(program.enablePositionalOptions(), entry.commands, operands, run)
      : async () => configure(program, (await entry.load()).command, run)
    // `help GROUP` prints the group's help without calling the hook below.
    if (named === 'help' || !(isOneNamed || isGroup)) await load()
    else prepare.set(program, load)
  }
  group.hook('preSubcommand', (_group, program) => prepare.get(program)?.())
}

function configure(program: Program, command: Command, run: Run): void {
  for (const argument of command.arguments ?? []) program.addArgument(argument)
  for (const option of command.options ?? []) program.addOption(option)
  program.action(() => {
    const words = program.registeredArguments.map((argument, at) => [argument.name(), program.processedArgs[at]])
    const given = { ...program.opts(), ...Object.fromEntries(words) }
    for (const [name, value] of Object.entries(given)) {
      // A variable of a script that is not set would otherwise mean "all" or "none".
      if (value === '') throw new UsageError(`The value of ${name} is empty. Give one, or leave it out.`)
    }
    return run(command, given)
  })
}
