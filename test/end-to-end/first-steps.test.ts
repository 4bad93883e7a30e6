import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { normaliseAddress } from '../../controller/network/addresses.js'
import { installOpenstack } from '../support/clients/openstack-command.js'
import { startIn } from '../support/clients/steady-asker.js'
import { recipesOf } from '../support/inputs/recipes.js'
import { hostNetwork } from '../support/worlds/host-network.js'
import { createKrater, type Krater, until } from '../support/worlds/krater.js'
import { createLan, type Lan } from '../support/worlds/lan.js'
import { takeForwardingTurn } from '../support/worlds/turns.js'

const root = join(import.meta.dirname, '../..')
const DONE = '@@ done'
/** No recipe takes as long, unless one of its commands never ends. */
const RECIPE_MS = 150_000

const binariesOf = (home: string): string => join(home, 'bin')

/** One shell for all recipes, in the checkout, as a reader has it. It ends with the test. */
function openShell(t: Test, krater: Krater, home: string) {
  const child = spawn('bash', ['-eu', '-o', 'pipefail'], {
    cwd: root,
    env: {
      ...krater.environment,
      ...{ HOME: home, npm_config_update_notifier: 'false', PATH: `${binariesOf(home)}:${process.env.PATH}` },
    },
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: true,
  })
  const closed = once(child, 'close')
  /** With the programs that the recipes left in the background. */
  const kill = () => child.exitCode === null && child.signalCode === null && process.kill(-Number(child.pid), 'SIGKILL')
  t.teardown(kill)
  let errors = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text))
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return {
    /** @returns the output. @throws Error with the shell's complaints when a command fails */
    run: async (commands: string): Promise<string> => {
      child.stdin.write(`${commands}\necho '${DONE}'\n`)
      const output: string[] = []
      const late = setTimeout(kill, RECIPE_MS)
      try {
        for (let line = await lines.next(); line.value !== DONE; line = await lines.next()) {
          if (line.done === true) throw new Error([...output, errors.slice(-3000)].join('\n'))
          output.push(line.value)
        }
      } finally {
        clearTimeout(late)
      }
      return output.join('\n')
    },
    end: async () => {
      kill()
      await closed
    },
  }
}

/** Starts a container with crun, a runtime that Docker and Podman use. `docker inspect` asks it. */
function containerOf(directory: string): string {
  for (const name of ['dev', 'proc', 'usr', 'tmp']) mkdirSync(join(directory, 'rootfs', name), { recursive: true })
  for (const name of ['bin', 'lib', 'lib64']) symlinkSync(`usr/${name}`, join(directory, 'rootfs', name))
  const namespaces = ['pid', 'network', 'ipc', 'uts', 'mount'].map(type => ({ type }))
  writeFileSync(
    join(directory, 'config.json'),
    JSON.stringify({
      ociVersion: '1.0.2',
      process: {
        args: ['python3', '-m', 'http.server', '8080', '--directory', '/tmp'],
        env: ['PATH=/usr/bin'],
        cwd: '/',
        user: { uid: 0, gid: 0 },
      },
      root: { path: 'rootfs' },
      mounts: [
        { destination: '/proc', type: 'proc', source: 'proc' },
        { destination: '/usr', type: 'bind', source: '/usr', options: ['rbind', 'ro'] },
      ],
      linux: { namespaces },
    }),
  )
  return `
    crun() { command crun --root ${directory}/state --cgroup-manager disabled "$@"; }
    docker() { crun state "$4" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])'; }
    crun run --detach --bundle ${directory} box < /dev/null > ${directory}/log 2>&1 || { cat ${directory}/log; false; }`
}

/** Answers with the address that was asked. */
const FAR = `require('node:http')
  .createServer(({ socket }, response) => response.end(socket.localAddress.replace('::ffff:', '') + '\\n'))
  .listen(8080, '::')`

/** Starts a machine of the reader's LAN, to which `ssh` leads. */
async function farMachineOf(t: Test, lan: Lan): Promise<string> {
  const namespace = await lan.machine(12)
  const web = startIn(namespace)(process.execPath, ['-e', FAR])
  t.teardown(() => web.kill('SIGKILL'))
  return `ssh() { shift; ip netns exec ${namespace} "$@"; }`
}

t.test('a reader who follows the first steps meets no error', async t => {
  t.setTimeout(1_100_000)
  await takeForwardingTurn(t)
  const lan = await createLan(t)
  const state = () => hostNetwork(lan.interfaceName)
  let before = await state()
  await until('its addresses are settled', async () => {
    before = await state()
    const addresses = before.addresses?.join() ?? ''
    return addresses.includes('fe80:') && !addresses.includes('tentative')
  })
  const krater = await createKrater(t)
  // As short as a reader's: sockets below it have paths of limited length.
  const home = mkdtempSync(join(tmpdir(), 'home-'))
  t.teardown(() => rmSync(home, { recursive: true, force: true }))
  const page = readFileSync(join(root, 'docs/first-steps.md'), 'utf8')
  mkdirSync(binariesOf(home))
  await installOpenstack(t, binariesOf(home))
  const shell = openShell(t, krater, home)
  await shell.run(containerOf(join(home, 'container')))
  await shell.run(await farMachineOf(t, lan))
  const changes: [RegExp, string][] = [
    [/\/var\/lib\/krater/g, krater.directory],
    [/git pull/g, 'git --version'],
    // The reader's LAN is the test's.
    [/192\.168\.1\.5\b/g, lan.address.v4(1)],
    [/192\.168\.1\.(\d+)/g, lan.address.v4(0).replace(/0$/, '$1')],
    [/2001:db8:1::12/g, normaliseAddress(lan.address.v6(12)) ?? ''],
    [/lan:eth0/g, `lan:${lan.interfaceName}`],
  ]
  for (const { title, commands, output } of recipesOf(page)) {
    await t.test(`${title}: ${commands.split('\n', 1)[0]}`, async t => {
      const own = (text: string) => changes.reduce((changed, [what, by]) => changed.replace(what, by), text)
      const got = await shell.run(own(commands))
      const lines = output === null ? [] : own(output).trimEnd().split('\n')
      for (const line of lines) t.match(`\n${got}\n`, `\n${line}\n`)
      t.pass('its commands succeed')
    })
  }
  await shell.run('crun delete --force box')
  const instance = krater.instance()
  t.equal((await krater.command('down', '--all', '--yes')).status, 0)
  t.same(await hostNetwork(lan.interfaceName, instance), before, 'nothing of the host has changed')
  await shell.end()
})
