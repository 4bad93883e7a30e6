import { spawn } from 'node:child_process'
import { appendFileSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'

const terminal = process.stdout.isTTY === true
const started = Date.now()

/** A failure that is reported by its message, without a stack. */
export class Failure extends Error {}

const elapsed = () => `${((Date.now() - started) / 1000).toFixed(1).padStart(6)} s`

/** What the steps that run now show, and how many lines of it are on the terminal. */
const running = new Set()
let drawn = 0

/** Draws the running steps at the end of the terminal, one line each, below the lines that stay. */
function draw(lines = '') {
  const width = (process.stdout.columns || 80) - 1
  const steps = [...running].map(show => `${elapsed()}  ${show().slice(0, width - elapsed().length - 2)}\n`)
  const up = drawn > 0 ? `\x1b[${drawn}A\x1b[J` : ''
  process.stdout.write(`${up}${lines}${steps.join('')}`)
  drawn = steps.length
}

/** Prints a line of progress with the time since the start. */
export function say(text) {
  const line = `${elapsed()}  ${text}\n`
  if (terminal) draw(line)
  else process.stdout.write(line)
}

/**
 * Shows `text` while `work` runs: on a terminal, one line with a running time; elsewhere, a line every 15 s.
 * Shows beside it what `work` reports through its argument. Steps may run beside each other.
 * @param signal if it has aborted when the work fails, the step counts as stopped
 */
export async function step(text, work, signal) {
  const begun = Date.now()
  let detail = ''
  const seconds = () => `${Math.round((Date.now() - begun) / 1000)} s`
  const show = () => `${text} ... ${seconds()}  ${detail}`
  if (terminal) running.add(show)
  else say(`${text} ...`)
  const timer = terminal ? setInterval(draw, 200) : setInterval(() => say(show()), 15_000)
  if (terminal) draw()
  const end = how => {
    clearInterval(timer)
    running.delete(show)
    say(`${text}: ${how} ${seconds()}`)
  }
  try {
    const result = await work(line => {
      detail = line.replace(/[^\x20-\x7e]/g, ' ').trim()
    })
    end('done in')
    return result
  } catch (error) {
    end(signal?.aborted ? 'stopped after' : 'failed after')
    throw error
  }
}

/**
 * Runs works beside each other, each with a signal that stops it. The first failure stops the others.
 * @param signal stops all of them
 * @throws the first failure, once all have ended
 */
export async function beside(signal, works) {
  const failures = []
  const controller = new AbortController()
  const either = AbortSignal.any([signal, controller.signal])
  const run = async work => {
    try {
      await work(either)
    } catch (error) {
      failures.push(error)
      controller.abort()
    }
  }
  await Promise.all(works.map(run))
  if (failures.length > 0) throw failures[0]
}

/** How long a program has to end by itself once it is told to. */
const GRACE_SECONDS = 10

/**
 * Runs a program, appends its output to a log file, and reports the last line as progress. A `signal` or the end of its
 * time ends it. If it does not end by itself within `grace` seconds, it is killed, and nobody waits for its children. With
 * a `signal`, all of this is for what it started, too: mmdebstrap alone would go on for minutes.
 * @returns {Promise<{code: number, tail: string}>} the exit status (128 + n for a signal) and the last lines of output
 */
export function runLogged(
  program,
  args,
  { logFile, env = {}, cwd, seconds, grace = GRACE_SECONDS, signal, report = () => {} },
) {
  return new Promise((resolve, reject) => {
    const write = text => appendIfPossible(logFile, text)
    write(`\n$ ${program} ${args.join(' ')}\n`)
    const stdio = ['ignore', 'pipe', 'pipe']
    const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio, detached: signal !== undefined })
    let output = ''
    const take = chunk => {
      write(chunk)
      output = (output + chunk).slice(-8_000)
      const lines = output.trimEnd().split(/[\r\n]/)
      report(lines.at(-1) ?? '')
    }
    child.stdout.setEncoding('utf8').on('data', take)
    child.stderr.setEncoding('utf8').on('data', take)
    let killing
    const end = name => (signal === undefined ? child.kill(name) : endGroup(child, name))
    const stop = () => {
      end('SIGTERM')
      killing ??= setTimeout(() => {
        end('SIGKILL')
        // Children of it may keep them open.
        for (const stream of [child.stdout, child.stderr]) stream.destroy()
      }, grace * 1000)
    }
    const limit = setTimeout(() => {
      take(`\n${program} took longer than ${seconds} s and was stopped.\n`)
      stop()
    }, seconds * 1000)
    signal?.addEventListener('abort', stop)
    if (signal?.aborted) stop()
    const settle = () => {
      for (const timer of [limit, killing]) clearTimeout(timer)
      signal?.removeEventListener('abort', stop)
    }
    child.on('error', error => {
      settle()
      reject(new Failure(`Cannot start ${program}: ${error.message}`))
    })
    child.on('close', (code, killedBy) => {
      settle()
      const tail = output.trimEnd().split('\n').slice(-15).join('\n')
      resolve({ code: code ?? 128 + constants.signals[killedBy], tail })
    })
  })
}

const UNREACHABLE =
  /Temporary failure resolving|Could not resolve|Could not connect|Cannot initiate the connection|Connection timed out|Network is unreachable|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT/
const PROXY = /407 |Proxy Authentication|tunneling socket could not be established|Invalid response from proxy/i

/** Ends a process that leads a group, and its group. Those that have ended already do not matter. */
function endGroup({ pid }, name) {
  try {
    if (pid !== undefined) process.kill(-pid, name)
  } catch (error) {
    if (error.code !== 'ESRCH') throw error
  }
}

/** A full disk must not hide what the program says of it. */
function appendIfPossible(path, text) {
  try {
    appendFileSync(path, text)
  } catch (error) {
    if (error.code !== 'ENOSPC') throw error
  }
}

/**
 * The failure of a program: the reason, if its output shows one, the last lines of the output, and the path of
 * the log.
 */
export function failureOf(what, { code, tail }, logFile) {
  let reason = `${what} failed (exit status ${code}).`
  if (PROXY.test(tail)) {
    reason = `${what} failed: the proxy refused the connection. Check http_proxy and https_proxy in the environment.`
  } else if (UNREACHABLE.test(tail)) {
    reason = `${what} failed: the package server cannot be reached. This step needs the network; behind a proxy, set http_proxy and https_proxy.`
  } else if (/No space left on device|ENOSPC/.test(tail)) {
    reason = `${what} failed: the disk is full.`
  } else if (/Could not get lock|is held by process/.test(tail)) {
    reason = `${what} failed: another package manager is running. Try again when it has finished.`
  }
  return new Failure(`${reason}\nThe last lines of output:\n${tail.replace(/^/gm, '  ')}\nThe full log: ${logFile}`)
}

/**
 * Runs a script's main function. Prints the message of a Failure, the stack of any other error, and sets exit
 * status 1, unless interrupted.
 */
export async function runScript(main) {
  try {
    await main()
  } catch (error) {
    // An interruption makes things fail; do not report that.
    if (process.exitCode > 128) return
    process.stderr.write(`\n${error instanceof Failure ? error.message : (error?.stack ?? error)}\n`)
    process.exitCode = 1
  }
}

/** The last `count` lines of a file; '' if there is no file. */
export function tailOf(path, count) {
  try {
    return readFileSync(path, 'utf8').trimEnd().split('\n').slice(-count).join('\n')
  } catch {
    return ''
  }
}
