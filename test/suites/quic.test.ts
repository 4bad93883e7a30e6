import { spawn } from 'node:child_process'
import { createHash, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startBrowser } from '../support/clients/browser.js'
import { makePair } from '../support/inputs/certificates.js'
import { createMember, type Member } from '../support/services/members.js'
import { startKrater, until } from '../support/worlds/krater.js'

const HOST = 'h3.test'
const PORT = 8443

/** Serves HTTP/3 in a member's namespace: an answer names the protocol, the member, and the connection by its port. */
async function startCaddy(t: Test, { namespace, name }: Member, directory: string): Promise<void> {
  const own = join(directory, name)
  mkdirSync(own)
  const file = join(own, 'Caddyfile')
  writeFileSync(
    file,
    `{
  admin off
  auto_https disable_redirects
  storage file_system ${own}
}
https://${HOST}:${PORT} {
  tls ${directory}/certificate.pem ${directory}/key.pem
  respond "{http.request.proto} ${name} {http.request.remote.port}"
}
`,
  )
  const words = ['netns', 'exec', namespace, 'caddy', 'run', '--config', file, '--adapter', 'caddyfile']
  const caddy = spawn('ip', words, { env: { ...process.env, HOME: own }, stdio: ['ignore', 'ignore', 'pipe'] })
  t.teardown(async () => {
    const ended = once(caddy, 'exit')
    caddy.kill('SIGKILL')
    await ended
  })
  let said = ''
  for await (const piece of caddy.stderr.iterator({ destroyOnReturn: false })) {
    said += piece
    if (/serving initial configuration/.test(said)) break
  }
  caddy.stderr.resume()
}

t.test('a browser keeps its QUIC connection while the members of the pool change', async t => {
  const directory = t.testdir({})
  const { certificate, privateKey } = makePair({
    subject: `/CN=${HOST}`,
    args: ['-addext', `subjectAltName=DNS:${HOST}`],
  })
  writeFileSync(join(directory, 'certificate.pem'), certificate)
  writeFileSync(join(directory, 'key.pem'), privateKey)
  const spki = new X509Certificate(certificate).publicKey.export({ type: 'spki', format: 'der' })
  const krater = await startKrater(t)
  const members: Member[] = []
  for (const name of ['one', 'two', 'three']) {
    const member = await createMember(t, krater, name)
    await startCaddy(t, member, directory)
    members.push(member)
  }
  const [one, two, three] = members as [Member, Member, Member]
  const done = (line: string) => krater.openstack(`loadbalancer ${line}`.split(' '))
  const { vip_address: vip } = (await krater.openstack(
    'loadbalancer create --name h3 --vip-subnet-id public-subnet --wait -f json'.split(' '),
  )) as { vip_address: string }
  await done(`listener create --name quic --protocol UDP --protocol-port ${PORT} --wait h3`)
  await done('pool create --name quics --protocol UDP --lb-algorithm ROUND_ROBIN --listener quic --wait')
  const add = ({ name, address }: Member) =>
    done(
      `member create --name ${name} --subnet-id private-subnet --address ${address} --protocol-port ${PORT} --wait quics`,
    )
  await add(one)
  await add(two)

  const browser = await startBrowser(t, [
    `--origin-to-force-quic-on=${HOST}:${PORT}`,
    `--host-resolver-rules=MAP ${HOST} ${vip}`,
    `--ignore-certificate-errors-spki-list=${createHash('sha256').update(spki).digest('base64')}`,
    '--no-proxy-server',
  ])
  const page = await browser.newPage()
  await page.goto(`https://${HOST}:${PORT}/`)
  const ask = () => page.evaluate(() => fetch('/').then(answer => answer.text()))
  const first = await ask()
  t.match(first, /^HTTP\/3\.0 (one|two) \d+$/)
  const [own, other] = first.includes('one') ? [one, two] : [two, one]

  const answers: string[] = []
  let isStopped = false
  const asking = (async () => {
    while (!isStopped) answers.push(await ask())
  })()
  await add(three)
  await done(`member set --weight 9 --wait quics ${other.name}`)
  await done(`member set --weight 0 --wait quics ${own.name}`)
  await done(`member delete --wait quics ${other.name}`)
  isStopped = true
  await asking
  t.ok(answers.length > 20, `${answers.length} answers`)
  t.same([...new Set(answers)], [first], 'all on one connection to one member, which only drains')

  await done(`member set --disable --wait quics ${own.name}`)
  await until('the browser connects to another member', async () => /three/.test(await ask().catch(String)))
})
