import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { testDirectory } from '../database/database.js'
import type { Json } from './json-answers.js'

type Sample = { label: string; source: string }
type Operation = { operationId: string; responses: Record<string, Json>; 'x-codeSamples': Sample[] }

/** An operation of an API's description with its examples. */
export type Documented = {
  /** Such as `GET /v3/users/{id}`. */
  name: string
  operationId: string
  curl: string
  /** The command of the `openstack` client, if there is one. */
  command: string | undefined
  /** The status that the description promises. */
  status: number
}

/** All operations of an API, as it describes itself. */
export async function documentedOperations(url: string): Promise<Documented[]> {
  const { paths } = (await (await fetch(`${url}/openapi.json`)).json()) as { paths: Record<string, Json> }
  return Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item as unknown as Record<string, Operation>)
      .filter(([method]) => method !== 'parameters')
      .map(([method, { operationId, responses, 'x-codeSamples': samples = [] }]) => ({
        name: `${method.toUpperCase()} ${path}`,
        operationId,
        curl: samples.find(({ label }) => label === 'curl')?.source ?? '',
        command: samples.find(({ label }) => label === 'openstack')?.source,
        status: Number(Object.entries(responses).find(([, answer]) => answer.$ref === undefined)?.[0]),
      })),
  )
}

/** The variables without which the examples cannot run. */
export type Shell = Record<string, string>

/** Runs a curl example exactly as printed. @returns status, headers and body of the answer */
export async function runCurl(
  source: string,
  shell: Shell,
): Promise<{ status: number; headers: string; body: string }> {
  const directory = mkdtempSync(join(testDirectory(), 'curl-'))
  const observed = `curl() { command curl -sS --max-time 60 -o '${directory}/body' -D '${directory}/headers' -w '%{http_code}' "$@"; }`
  const { stdout } = await promisify(execFile)('bash', ['--norc', '-euc', `${observed}\n${source}`], {
    env: { PATH: process.env.PATH, ...shell },
    timeout: 90_000,
  })
  const read = (name: string) => readFileSync(join(directory, name), 'utf8')
  return { status: Number(stdout), headers: read('headers'), body: Number(stdout) === 204 ? '' : read('body') }
}

/** A command for a session: on one line, with the values of its variables. @throws Error for a variable without value */
export const commandLine = (source: string, shell: Shell): string =>
  source
    .replaceAll(' \\\n ', '')
    .replace(/^openstack /, '')
    .replace(/\$(\w+)/g, (_, name: string) => {
      const value = shell[name]
      if (value === undefined) throw new Error(`${source} needs a value for $${name}`)
      return value
    })
