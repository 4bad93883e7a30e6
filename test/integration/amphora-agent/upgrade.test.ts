import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { type AgentBundle, readAgentBundle } from '../../../controller/provider/amphora/agent/bundle.js'
import { SshAgentConnections } from '../../../controller/provider/amphora/agent/connection.js'
import { upgradeAgent } from '../../../controller/provider/amphora/agent/upgrade.js'
import { desire } from '../../support/worlds/amphora-desired.js'
import { asOperator, createLab, eventually, quiet } from '../../support/worlds/machines.js'
import { bundle } from '../../support/worlds/programs.js'

const programs = t.testdir({})
await bundle({ agent: join(import.meta.dirname, '../../../amphora-agent/main.ts') }, programs)
const agentBundle = join(programs, 'agent.mjs')
const lab = await createLab({ agentBundle })
const agents = new SshAgentConnections({ controllerKey: lab.controllerKey, log: quiet })
t.teardown(async () => {
  await agents.stop()
  await lab.destroy()
})
const own = readAgentBundle(agentBundle)

/** Another agent: this one, with code in front of it. */
function variant(code: string): AgentBundle {
  const content = Buffer.from(`${code}\n${own.content}`)
  return { sha256: createHash('sha256').update(content).digest('hex'), content }
}
/** Unless it is only checked. */
const inEarnest = (code: string) => `if (!process.argv.includes('--check')) { ${code} }`

const hello = { verb: 'hello' } as const
const always = () => undefined

/** Requests one after another on a lasting connection and on new ones, until it is stopped; then prints how many failed. */
const CLIENT = `
const http = require('node:http')
const lasting = new http.Agent({ keepAlive: true, maxSockets: 1 })
const counts = { done: 0, failed: [] }
let stopping = false
process.on('SIGTERM', () => { stopping = true })
const ask = agent => new Promise(resolve => {
  const request = http.get({ host: '127.0.0.1', port: 8080, agent, timeout: 2000 }, answer => {
    answer.resume().on('end', () => { answer.statusCode === 200 ? counts.done++ : counts.failed.push(answer.statusCode); resolve() })
  })
  request.on('timeout', () => request.destroy(new Error('timeout')))
  request.on('error', error => { counts.failed.push(error.message); resolve() })
})
const run = async agent => { while (!stopping) { await ask(agent); await new Promise(next => setTimeout(next, 5)) } }
Promise.all([run(lasting), run(false)]).then(() => { console.log(JSON.stringify(counts)); process.exit() })
console.log('begun')
`

t.test('an agent is replaced in place', async t => {
  const { spec, target } = lab.amphora()
  const inside = (command: string) => asOperator(target, lab.operatorKey, command)
  await lab.driver.create(spec)
  const frontend = ['  http-request return status 200 content-type text/plain string hello']
  await agents.request(target, { verb: 'apply', desired: desire({ generation: 1, frontend }) })
  const client = spawn('ip', ['netns', 'exec', lab.namespaceOf(spec.amphoraId), process.execPath, '-e', CLIENT], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  client.stdout.on('data', piece => {
    said += piece
  })
  await eventually('clients have begun', () => said.includes('begun'))
  const agentsIn = async () => (await inside('ls /opt/krater/agents')).trim().split('\n').sort()
  const programsOf = () => inside('pgrep -x haproxy | sort -n')
  const before = await programsOf()

  await t.test('it says what it is, and needs no copy of the bundle', async t => {
    t.match(await agents.request(target, hello), { bundle: own.sha256, onTrial: false, failedUpgrade: undefined })
    t.equal((await inside('ls -d /opt/krater/agents 2>&1 | head -c 9')).trim(), 'ls: canno')
  })

  const newer = variant('// newer')
  await t.test('by one that answers, and reports itself as good', async t => {
    t.match(await upgradeAgent(agents, target, newer, always), {
      bundle: newer.sha256,
      onTrial: false,
      appliedGeneration: 1,
    })
    t.same(await agentsIn(), ['current', `${newer.sha256}.mjs`].sort())
    t.notMatch(await inside('cat /run/krater/init.repairs 2>&1'), /unexpectedly/, 'no repair is reported')
  })

  await t.test('and stays, when it ends or is asked again', async t => {
    t.match(await upgradeAgent(agents, target, newer, always), { bundle: newer.sha256 })
    const { bootId } = await agents.request(target, hello)
    await inside('pkill -KILL -f agents/')
    await eventually('another one', async () => {
      const now = await agents.request(target, hello).catch(() => null)
      return now !== null && now.bootId !== bootId ? t.equal(now.bundle, newer.sha256) : null
    })
  })

  await t.test('a bundle that arrived damaged is refused', async t => {
    const damaged = { ...variant('// another'), sha256: '0'.repeat(64) }
    await t.rejects(upgradeAgent(agents, target, damaged, always), { message: /another SHA-256/ })
  })

  await t.test('one that does not start is refused, with its own words', async t => {
    const broken = variant('throw new Error("born to fail")')
    await t.rejects(upgradeAgent(agents, target, broken, always), { message: /does not start. .*born to fail/s })
    t.same(await agentsIn(), ['current', `${newer.sha256}.mjs`].sort())
  })

  await t.test('one that cannot be stored is refused', async t => {
    await inside('head -c 300M /dev/zero >/tmp/full')
    const large = variant(`// ${'x'.repeat(100_000)}`)
    await t.rejects(upgradeAgent(agents, target, large, always), { message: /cannot be stored.*no space left/s })
    await inside('rm /tmp/full')
    t.same(await agentsIn(), ['current', `${newer.sha256}.mjs`].sort())
    t.match(await agents.request(target, hello), { bundle: newer.sha256 })
  })

  await t.test('one that ends before it answers goes, and the former one is back', async t => {
    const dying = variant(inEarnest('console.error("I am dying"); process.exit(3)'))
    await t.rejects(upgradeAgent(agents, target, dying, always), { message: /former one is back. .*I am dying/s })
    t.match(await agents.request(target, hello), {
      bundle: newer.sha256,
      failedUpgrade: { sha256: dying.sha256, output: /I am dying/ },
    })
  })

  await t.test('so does one that hangs', async t => {
    const hanging = variant(inEarnest('process.kill(process.pid, "SIGSTOP")'))
    await t.rejects(upgradeAgent(agents, target, hanging, always), { message: /former one is back/ })
    t.match(await agents.request(target, hello), { bundle: newer.sha256 })
  })

  await t.test('whatever dies at whichever step, an agent runs that has answered before', async t => {
    const next = variant('// the one after')
    const file = `/opt/krater/agents/${next.sha256}.mjs`
    const halves = [
      ['half stored', `head -c 1000 /opt/krater/agent.mjs >/opt/krater/agents/staged.mjs`],
      ['stored, not linked', `cp /opt/krater/agent.mjs ${file}`],
      [
        'linked, but not whole',
        `head -c 1000 /opt/krater/agent.mjs >${file}; ln -s ${next.sha256}.mjs /opt/krater/agents/next`,
      ],
      ['on trial when the power fails', `ln -s ${next.sha256}.mjs /opt/krater/agents/trial`],
    ]
    for (const [what = '', leave = ''] of halves) {
      const { bootId } = await agents.request(target, hello)
      await inside(`${leave}; pkill -KILL -f agents/.*.mjs`)
      await eventually(what, async () => {
        const now = await agents.request(target, hello).catch(() => null)
        return now !== null && now.bootId !== bootId ? t.equal(now.bundle, newer.sha256, what) : null
      })
      t.same(await agentsIn(), ['current', `${newer.sha256}.mjs`].sort(), 'nothing is left of it')
    }
    t.match(await upgradeAgent(agents, target, next, always), { bundle: next.sha256 }, 'and the next one comes')
  })

  await t.test('without one request lost, and without another HAProxy', async t => {
    client.kill('SIGTERM')
    await eventually('clients have ended', () => client.exitCode !== null)
    const { done, failed } = JSON.parse(said.split('\n')[1] ?? '')
    t.same(failed, [])
    t.ok(done > 100, `${done} requests`)
    t.equal(await programsOf(), before)
  })

  await t.test('a machine that starts again has the agent of its host', async t => {
    await lab.driver.delete(spec.amphoraId)
    await lab.driver.create(spec)
    agents.close(spec.amphoraId)
    t.match(await agents.request(target, hello), { bundle: own.sha256 })
    t.equal(readFileSync(agentBundle).length, own.content.length, 'which nobody has changed')
  })
})
