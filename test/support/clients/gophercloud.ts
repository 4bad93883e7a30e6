import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { readCloud } from '../../../controller/cli/api-client.js'
import { type Krater, startKrater } from '../worlds/krater.js'

const run = promisify(execFile)
/** Where Debian has gophercloud, with its own acceptance tests. */
export const GOPATH = '/usr/share/gocode'
const LIMITS = { timeout: 500_000, maxBuffer: 64 * 1024 * 1024 }

/** A Krater, and a directory in which Go programs are built for it. */
export async function prepareGo(t: Test) {
  const directory = mkdtempSync(join(tmpdir(), 'gophercloud-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const krater = await startKrater(t, { KRATER_COMPUTE_DRIVER: 'noop' })
  const { id } = (await krater.openstack(['network', 'show', 'public', '-f', 'json'])) as { id: string }
  const env = { ...environmentOf(krater, directory), OS_EXTGW_ID: id }
  return {
    directory,
    /** Runs the compiler. @throws Error with its output when it fails */
    go: (...args: string[]) => run('go', args, { ...LIMITS, env, cwd: directory }),
    /** Runs a program to its end. @returns what it printed, whatever its status */
    run: (program: string, args: readonly string[], cwd = directory) =>
      run(program, args, { ...LIMITS, env, cwd }).catch((failed: { stdout: string; stderr: string }) => failed),
  }
}

/** OS_* is the administrator, as whom the acceptance tests run; DEMO_OS_* is a tenant. */
function environmentOf(krater: Krater, directory: string): NodeJS.ProcessEnv {
  const { auth, region_name } = readCloud(krater.directory, 'krater-admin')
  const { auth: demo } = readCloud(krater.directory, 'krater')
  return {
    PATH: process.env.PATH,
    GOPATH,
    GO111MODULE: 'off',
    GOCACHE: join(directory, 'cache'),
    GOTMPDIR: directory,
    CGO_ENABLED: '0',
    OS_AUTH_URL: auth.auth_url,
    OS_REGION_NAME: region_name,
    OS_DOMAIN_NAME: 'Default',
    OS_USERNAME: auth.username,
    OS_PASSWORD: auth.password,
    OS_PROJECT_NAME: auth.project_name,
    DEMO_OS_USERNAME: demo.username,
    DEMO_OS_PASSWORD: demo.password,
    DEMO_OS_PROJECT_NAME: demo.project_name,
    // The acceptance tests ask for these, and do not use them for these services.
    ...Object.fromEntries(['IMAGE_ID', 'FLAVOR_ID', 'FLAVOR_ID_RESIZE'].map(name => [`OS_${name}`, name])),
    OS_POOL_NAME: 'public',
  }
}
