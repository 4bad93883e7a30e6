import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { ConfigurationError } from './configuration-error.js'

const run = promisify(execFile)

const COMMAND_LIMIT_MS = 30_000

/** The origin of a secret that must not be in the settings. */
export type SecretSource =
  | { kind: 'file'; path: string }
  | { kind: 'variable'; name: string }
  | { kind: 'command'; argv: readonly [string, ...string[]] }

/** The settings of a source. At most one is set; none may mean a default. */
export type SourceSettings = {
  file?: string | undefined
  variable?: string | undefined
  command?: string[] | undefined
}

/** @returns null when no setting is set */
export function sourceOf({ file, variable, command }: SourceSettings): SecretSource | null {
  if (file !== undefined) return { kind: 'file', path: file }
  if (variable !== undefined) return { kind: 'variable', name: variable }
  const [program, ...words] = command ?? []
  return program === undefined ? null : { kind: 'command', argv: [program, ...words] }
}

/** The origin of a secret for messages, without its content. */
export function originOf(source: SecretSource): string {
  if (source.kind === 'file') return `the file ${source.path}`
  if (source.kind === 'variable') return `the environment variable ${source.name}`
  return `the output of ${source.argv[0]}`
}

/**
 * Reads a secret. A command has 30 seconds; its output is not logged.
 * @param what for messages, such as `the master key`
 * @throws ConfigurationError that says what is wrong, without the content
 */
export async function readSecret(source: SecretSource, what: string, environment = process.env): Promise<string> {
  if (source.kind === 'file') {
    return readFile(source.path, 'utf8').catch(error => {
      throw new ConfigurationError(
        `${source.path} (${what}) cannot be read: ${error.code}. Copy it back from a backup, or correct the setting that names it.`,
      )
    })
  }
  if (source.kind === 'variable') {
    const value = environment[source.name] ?? ''
    if (value === '')
      throw new ConfigurationError(
        `The environment variable ${source.name} (${what}) is not set. Set it for every process and command, or correct the setting that names it.`,
      )
    return value
  }
  return outputOf(source.argv, what, environment)
}

async function outputOf(
  [program, ...words]: readonly [string, ...string[]],
  what: string,
  environment: NodeJS.ProcessEnv,
): Promise<string> {
  type Failure = { code?: unknown; signal?: unknown; killed?: boolean }
  const options = {
    timeout: COMMAND_LIMIT_MS,
    killSignal: 'SIGKILL',
    maxBuffer: 65_536,
    env: environment,
    cwd: '/',
  } as const
  const child = run(program, words, options)
  child.child.stdin?.end()
  const { stdout } = await child.catch((failure: Failure) => {
    const how =
      failure.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER'
        ? 'printed too much'
        : failure.killed === true
          ? `did not end within ${COMMAND_LIMIT_MS / 1000} s`
          : typeof failure.code === 'number'
            ? `ended with status ${failure.code}`
            : `cannot be run (${String(failure.code ?? failure.signal)})`
    throw new ConfigurationError(`The command ${program} (${what}) ${how}; run it by hand to see why.`)
  })
  return stdout
}
