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
  /** Under whose account it runs; ours unless given. */
  account?: { uid: number; gid: number }
}

/**
 * Runs a program to its end, never through a shell. An exit status other than 0 is a result, not an error.
 * @throws Error when the program cannot be started, does not end in time (it is then killed), or says too much
 */
export function run(
  program: string,
  args: readonly string[],
  { input = '', timeoutMs = 10_000, account }: RunOptions = {},
): Promise<RunResult> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { ...account, stdio: ['pipe', 'pipe', 'pipe'] })
    const output = { stdout: [] as Buffer[], stderr: [] as Buffer[] }
    let size = 0
    let failure: Error | null = null
    const fail = (error: Error) => {
      failure ??= error
      child.kill('SIGKILL')
    }
    const timer = setTimeout(() => fail(new Error(`${program} did not end within ${timeoutMs} ms`)), timeoutMs)
    for (const name of ['stdout', 'stderr'] as const) {
      child[name].on('data', (piece: Buffer) => {
        size += piece.length
        output[name].push(piece)
        if (size > MAX_OUTPUT) fail(new Error(`${program} said too much`))
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
    // A program that ends without reading its input is judged by its exit status.
    child.stdin.on('error', () => {})
    child.stdin.end(input)
  })
}

const textOf = (pieces: Buffer[]): string => Buffer.concat(pieces).toString('utf8')
