import { spawn } from 'node:child_process'

const MAX_OUTPUT = 16 * 1024 * 1024

export type RunResult = {
  /** Null when a signal ended the program. */
  status: number | null
  stdout: string
  stderr: string
}

type RunOptions = {
  input?: string
  timeoutMs?: number
  /** The account to run under; the agent's own by default. */
  account?: { uid: number; gid: number }
  /** Its working directory; the agent's own by default. */
  cwd?: string
}

/**
 * Runs a program until it exits, never through a shell. A nonzero exit status is a result, not an error.
 * @throws Error if the program cannot be started, or exceeds the timeout or the output limit (it is then killed)
 */
export function run(
  program: string,
  args: readonly string[],
  { input = '', timeoutMs = 10_000, account, cwd }: RunOptions = {},
): Promise<RunResult> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { ...account, cwd, stdio: ['pipe', 'pipe', 'pipe'] })
    const output = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
    let size = 0
    let failure: Error | null = null
    const fail = (error: Error) => {
      failure ??= error
      child.kill('SIGKILL')
    }
    const timer = setTimeout(() => fail(new Error(`${program} did not exit within ${timeoutMs} ms`)), timeoutMs)
    for (const name of ['stdout', 'stderr'] as const) {
      child[name].on('data', (piece: Buffer) => {
        size += piece.length
        output[name].push(piece)
        if (size > MAX_OUTPUT) fail(new Error(`${program} printed more than ${MAX_OUTPUT} bytes`))
      })
    }
    child.on('error', error => {
      clearTimeout(timer)
      reject(error)
    })
    child.on('close', status => {
      clearTimeout(timer)
      if (failure) reject(failure)
      else resolve({ status, stdout: textOf(output.stdout), stderr: textOf(output.stderr) })
    })
    // A program may exit without reading its input; its exit status decides.
    child.stdin.on('error', () => {})
    child.stdin.end(input)
  })
}

const textOf = (pieces: Buffer[]): string => Buffer.concat(pieces).toString('utf8')
