import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { ownPorts } from '../ports.js'
import { until } from '../worlds/krater.js'

/** Debian's dashboard of OpenStack, for users of an identity service. It ends with the test. @returns its URL */
export async function startHorizon(t: Test, identityUrl: string): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), 'horizon-'))
  // A package of this name takes the place of the one in /etc.
  mkdirSync(join(directory, 'local'))
  writeFileSync(join(directory, 'local/__init__.py'), '')
  writeFileSync(join(directory, 'local/local_settings.py'), settingsFor(identityUrl, directory))
  const [port] = await ownPorts(1)
  const child = spawn(
    '/usr/share/openstack-dashboard/manage.py',
    ['runserver', '--noreload', '--insecure', `127.0.0.1:${port}`],
    {
      env: { PATH: process.env.PATH, HOME: directory, PYTHONPATH: directory, PYTHONDONTWRITEBYTECODE: '1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  )
  const ended = new Promise(resolve => child.once('close', resolve))
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => (output = `${output}${text}`.slice(-2000)))
  }
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
    rmSync(directory, { recursive: true })
  })
  const url = `http://127.0.0.1:${port}`
  await until('Horizon answers', () => answers(url, () => child.exitCode !== null, output), 120)
  return url
}

async function answers(url: string, hasEnded: () => boolean, output: string): Promise<boolean> {
  if (hasEnded()) throw new Error(`Horizon has ended: ${output}`)
  return fetch(`${url}/auth/login/`).then(
    ({ ok }) => ok,
    () => false,
  )
}

const settingsFor = (identityUrl: string, directory: string): string => `
ALLOWED_HOSTS = ['127.0.0.1']
SECRET_KEY = '${'0'.repeat(50)}'
LOCAL_PATH = '${directory}'
OPENSTACK_KEYSTONE_URL = '${identityUrl}/v3'
`
