import { execFile, spawn } from 'node:child_process'
import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { until } from '../support/services/haproxy.js'

const run = promisify(execFile)

/** One kind of request, over a number of connections at once. */
export type Load = {
  /** 127.0.0.1 if absent. */
  host?: string
  port: number
  path: string
  connections: number
  newConnections: boolean
  seconds: number
  /** Without, HTTP in clear. */
  tls?: boolean
}

export type Answers = { requests: number; requestsPerSecond: number; p50: number; p99: number; broken: number }

/** Sends requests as fast as it can, with wrk. Latencies in milliseconds. */
export async function load({
  host = '127.0.0.1',
  port,
  path,
  connections,
  newConnections,
  seconds,
  tls = false,
}: Load): Promise<Answers> {
  const words = ['-t1', `-c${connections}`, `-d${seconds}s`, '--latency']
  const header = newConnections ? ['-H', 'Connection: close'] : []
  const url = `${tls ? 'https' : 'http'}://${host}:${port}${path}`
  const { stdout } = await run('wrk', [...words, ...header, url], { timeout: (seconds + 30) * 1000 })
  const numberAfter = (pattern: RegExp) => Number(pattern.exec(stdout)?.[1] ?? 0)
  const errors = /Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/.exec(stdout)?.slice(1) ?? []
  return {
    requests: numberAfter(/(\d+) requests in/),
    requestsPerSecond: numberAfter(/Requests\/sec: +([\d.]+)/),
    p50: milliseconds(/ 50% +(\S+)/.exec(stdout)?.[1]),
    p99: milliseconds(/ 99% +(\S+)/.exec(stdout)?.[1]),
    broken: errors.reduce((sum, count) => sum + Number(count), numberAfter(/Non-2xx or 3xx responses: (\d+)/)),
  }
}

const UNITS: Readonly<Record<string, number>> = { us: 0.001, ms: 1, s: 1000 }

function milliseconds(time = ''): number {
  const [, value, unit = ''] = /^([\d.]+)(us|ms|s)$/.exec(time) ?? []
  return Number(value) * (UNITS[unit] ?? Number.NaN)
}

/**
 * nginx as members: a small answer at /small, 1 MiB at /large, the same on each port. Connections stay open.
 * @returns a function that ends it
 */
export async function startMembers(directory: string, ports: readonly number[]): Promise<() => Promise<void>> {
  writeFileSync(join(directory, 'large'), Buffer.alloc(1024 * 1024))
  const file = join(directory, 'nginx.conf')
  writeFileSync(file, configuration(directory, ports))
  chmodSync(directory, 0o755)
  const child = spawn('/usr/sbin/nginx', ['-p', directory, '-c', file], { stdio: 'ignore' })
  const ended = new Promise<void>(resolve => child.once('exit', () => resolve()))
  const answers = () =>
    Promise.all(ports.map(port => fetch(`http://127.0.0.1:${port}/small`))).then(
      () => true,
      () => false,
    )
  const stop = async () => {
    child.kill('SIGTERM')
    await ended
  }
  if (await until(answers, 10_000)) return stop
  await stop()
  throw new Error('nginx did not start.')
}

const configuration = (directory: string, ports: readonly number[]) => `
daemon off;
worker_processes 1;
pid ${directory}/nginx.pid;
error_log /dev/null;
events { worker_connections 10000; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    server {
        ${ports.map(port => `listen 127.0.0.1:${port} backlog=4096;`).join(' ')}
        root ${directory};
        location /small { return 200 "hello from a member\\n"; }
    }
}
`
