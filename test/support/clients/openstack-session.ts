import { execFileSync, spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { testDirectory } from '../database/database.js'
import type { Krater } from '../worlds/krater.js'

const program = join(dirname(fileURLToPath(import.meta.url)), 'openstack-session.py')

export type Answer = { status: number; stdout: string; stderr: string }
export type Shown = Record<string, unknown>

/** An option of a command: its spellings, and its values if they are few. */
export type CommandOption = { options: string[]; choices: string[] }

/** One user's `openstack`, started once. Lines are split at blanks; text between single quotes is one word. */
export type OpenstackSession = {
  run: (line: string) => Promise<Answer>
  /** The same for words that are split already. */
  call: (argv: string[]) => Promise<Answer>
  /** A command that shows one object. @throws Error with its output when it fails, as the next two do */
  show: (line: string) => Promise<Shown>
  list: (line: string) => Promise<Shown[]>
  done: (line: string) => Promise<void>
  /** A command that fails; the caller checks how. */
  refused: (line: string) => Promise<Answer>
  /** The options of every command of a plugin, from the plugin's own parsers. */
  describe: (entryPoints: string) => Promise<Record<string, CommandOption[]>>
  runs: Run[]
}

/** The words of a command that did what the test expects: it ended with 0, or was refused as intended. */
export type Run = { words: string[]; refused: boolean }

/** The Python that runs the installed `openstack`, and so has the client's libraries. */
export function clientPython(): string {
  const executable = execFileSync('which', ['openstack'], { encoding: 'utf8' }).trim()
  const [, python] = /^#!\s*(\S+)/.exec(readFileSync(executable, 'utf8')) ?? []
  if (python === undefined) throw new Error(`${executable} does not name its Python`)
  return python
}

/** The environment of a client of this Krater. */
export const clientEnvironment = (krater: Krater, cloud: 'krater' | 'krater-admin') => ({
  PATH: process.env.PATH,
  // The client caches its list of plugins there.
  HOME: testDirectory(),
  OS_CLIENT_CONFIG_FILE: join(krater.directory, 'clouds.yaml'),
  OS_CLOUD: cloud,
  PYTHONWARNINGS: 'ignore',
})

/** The real client in a process that runs one command after another. It ends with the test. */
export const openstackSession = (t: Test, krater: Krater, cloud: 'krater' | 'krater-admin'): OpenstackSession =>
  openstackSessionIn(t, clientEnvironment(krater, cloud))

/** The same for any cloud and user that an environment names. */
export function openstackSessionIn(t: Test, env: NodeJS.ProcessEnv): OpenstackSession {
  const child = spawn(clientPython(), [program], { env })
  const ended = new Promise(resolve => child.once('close', resolve))
  t.teardown(() => {
    child.kill('SIGKILL')
    return ended
  })
  let complaint = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (complaint += text))
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const runs: Run[] = []

  async function ask(request: unknown): Promise<unknown> {
    child.stdin.write(`${JSON.stringify(request)}\n`)
    const { value, done } = await answers.next()
    if (done === true) throw new Error(`The client has ended: ${complaint}`)
    return JSON.parse(value)
  }

  async function execute(argv: string[]): Promise<Answer> {
    const answer = (await ask({ argv })) as Answer
    if (answer.status === 0) runs.push({ words: argv, refused: false })
    return answer
  }

  async function succeed(argv: string[]): Promise<string> {
    const { status, stdout, stderr } = await execute(argv)
    if (status !== 0) throw new Error(`openstack ${argv.join(' ')} ended with ${status}: ${stderr}${stdout}`)
    return stdout
  }

  const shown = async (line: string): Promise<unknown> => JSON.parse(await succeed([...words(line), '-f', 'json']))

  return {
    run: line => execute(words(line)),
    call: execute,
    show: async line => (await shown(line)) as Shown,
    list: async line => (await shown(line)) as Shown[],
    done: async line => {
      await succeed(words(line))
    },
    refused: async line => {
      const answer = await execute(words(line))
      if (answer.status !== 0) runs.push({ words: words(line), refused: true })
      return answer
    },
    describe: async entryPoints => (await ask({ describe: entryPoints })) as Record<string, CommandOption[]>,
    runs,
  }
}

const words = (line: string): string[] =>
  [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, word]) => quoted ?? word!)

/**
 * The parts of a plugin's commands that no run used: commands, options (`<command> --option`) and values of
 * options that accept few (`<command> --option VALUE`). A value that the service refuses counts as used; an
 * option does not.
 */
export function unused(commands: Readonly<Record<string, CommandOption[]>>, runs: readonly Run[]): string[] {
  const names = Object.keys(commands).sort()
  return names.flatMap(name => {
    const own = runs.filter(run => commandOf(run.words, names) === name)
    const accepted = own.filter(({ refused }) => !refused)
    if (accepted.length === 0) return [name]
    return (commands[name] ?? []).flatMap(({ options, choices }) => {
      const label = `${name} ${options[0]}`
      if (!accepted.some(({ words }) => words.some(word => options.includes(word)))) return [label]
      const values = own.flatMap(({ words }) => words.filter((_, at) => options.includes(words[at - 1] ?? '')))
      return choices.filter(choice => !values.includes(choice)).map(choice => `${label} ${choice}`)
    })
  })
}

/** The longest command name with which the words begin. */
const commandOf = (words: readonly string[], names: readonly string[]): string | undefined =>
  names.filter(name => `${words.join(' ')} `.startsWith(`${name} `)).sort((one, other) => other.length - one.length)[0]
