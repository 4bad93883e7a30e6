import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { parseConfiguration } from '../../../controller/config/load.js'
import { ApiError } from '../../../controller/http/errors.js'
import type { ExternalIdentity } from '../../../controller/identity/external/external-identity.js'
import { externalIdentity } from '../../../controller/identity/external/external-identity.js'
import type { Logger } from '../../../controller/log/log.js'
import { recordLog } from '../../support/recorded-log.js'
import { validatorAt } from '../../support/services/external-identity.js'
import {
  answer,
  type FakeKeystone,
  notFound,
  startFakeKeystone,
  tokenDocument,
} from '../../support/services/fake-keystone.js'

/** Cases that take time, with a fake Keystone: outages, queues, expiring tokens. */

/** A fake Keystone and a validator that uses it. */
async function scene(t: Test, settings: Partial<ExternalIdentity> = {}, log?: Logger) {
  const keystone = await startFakeKeystone(t)
  const validator = validatorAt(keystone.url, settings, log)
  t.teardown(validator.close)
  return { keystone, validate: validator.validate, signIn: validator.signIn }
}

const isAway = (error: unknown) =>
  error instanceof ApiError && error.status === 503 && error.headers['WWW-Authenticate'] === undefined

async function awayFor(t: Test, promise: Promise<unknown>, what: string) {
  const outcome = await promise.catch((error: unknown) => error)
  t.ok(isAway(outcome), `${what}: 503`)
}

t.test('a revoked token is refused once its cache entry expires', async t => {
  const { keystone, validate } = await scene(t, { tokenCacheSeconds: 2 })
  t.ok(await validate('good'))
  keystone.validate = notFound
  t.ok(await validate('good'), 'the cached result is still valid')
  await delay(2_010)
  t.equal(await validate('good'), null)
})

t.test('an expired token is refused, cached or not', async t => {
  const { keystone, validate } = await scene(t)
  keystone.validate = (_, response) => answer(response, 200, tokenDocument({}, 1.5))
  t.ok(await validate('good'))
  await delay(1_510)
  t.equal(await validate('good'), null)
  t.equal(keystone.asked.validate, 1)
})

t.test('our service token', async t => {
  await t.test('is replaced when Keystone no longer accepts it', async t => {
    const { keystone, validate } = await scene(t)
    t.ok(await validate('good-1'))
    keystone.given.clear()
    t.ok(await validate('good-2'))
    t.same(keystone.asked, { login: 2, validate: 3 })
  })

  await t.test('yields 503 when Keystone refuses a fresh one too', async t => {
    const { keystone, validate } = await scene(t)
    keystone.validate = (_, response) => answer(response, 401, { error: { code: 401 } })
    await awayFor(t, validate('good'), 'twice 401')
    t.same(keystone.asked, { login: 2, validate: 2 })
  })

  await t.test('is renewed before it expires', async t => {
    const { keystone, validate } = await scene(t)
    const login = keystone.login
    keystone.login = (_, response) => {
      const token = `short-${keystone.given.size}`
      keystone.given.add(token)
      answer(response, 201, tokenDocument({}, 3), { 'X-Subject-Token': token })
    }
    t.ok(await validate('good-1'))
    await delay(2_400)
    keystone.login = (_, response) => answer(response, 503, 'busy')
    t.ok(await validate('good-2'), 'it is used until it expires if renewal fails')
    t.equal(keystone.asked.login, 2)
    await delay(610)
    await awayFor(t, validate('good-3'), 'after it expired')
    keystone.login = login
    t.ok(await validate('good-3'))
  })

  await t.test('does not depend on our clock', async t => {
    const { keystone, validate } = await scene(t)
    keystone.login = (_, response) => {
      keystone.given.add('own')
      const times = { issued_at: '2020-01-01T00:00:00.000000Z', expires_at: '2020-01-01T01:00:00.000000Z' }
      answer(response, 201, tokenDocument(times), { 'X-Subject-Token': 'own' })
    }
    t.ok(await validate('good-1'))
    t.ok(await validate('good-2'))
    t.equal(keystone.asked.login, 1)
  })

  await t.test('is not requested repeatedly when Keystone refuses our user', async t => {
    const { log, text } = recordLog()
    const { keystone, validate, signIn } = await scene(t, {}, log)
    keystone.login = (_, response) => answer(response, 401, { error: { code: 401 } })
    await t.rejects(signIn(), /does not accept the user krater of the domain Default on the project service/)
    for (const token of ['good-1', 'good-2', 'good-3']) await awayFor(t, validate(token), token)
    t.equal(keystone.asked.login, 1, 'Keystone may lock users out')
    t.match(text(), /identity\.password/)
    t.notMatch(text(), /krater-pw/)
  })
})

t.test('a misbehaving Keystone yields 503, never 401', async t => {
  const huge = 'x'.repeat(1024 * 1024)
  const cases: Record<string, FakeKeystone['validate']> = {
    'policy 403': (_, response) => answer(response, 403, { error: { code: 403 } }),
    '500': (_, response) => answer(response, 500, { error: { code: 500 } }),
    '503 of a proxy': (_, response) => answer(response, 503, '<html>', { 'Content-Type': 'text/html' }),
    '429': (_, response) => answer(response, 429, 'slow down'),
    'a redirect': (_, response) => answer(response, 302, '', { Location: 'http://127.0.0.1:1/' }),
    '404 of a web server': (_, response) => answer(response, 404, '<html>', { 'Content-Type': 'text/html' }),
    '404 of something else': (_, response) => answer(response, 404, { message: 'no such page' }),
    'a web page': (_, response) => answer(response, 200, '<html>', { 'Content-Type': 'text/html' }),
    'other JSON': (_, response) => answer(response, 200, { tokens: [] }),
    'a token without a user': (_, response) => answer(response, 200, tokenDocument({ user: undefined })),
    'broken JSON': (_, response) => answer(response, 200, '{"token": {'),
    'half an answer': (_, response) => {
      response.writeHead(200, { 'Content-Length': '500' })
      response.write('{"token":')
      setTimeout(() => response.destroy(), 10)
    },
    'a closed connection': request => request.socket.destroy(),
    'no HTTP': request => request.socket.end('SSH-2.0-OpenSSH_9.2\r\n'),
    silence: () => undefined,
    'an answer without end': (_, response) => {
      response.writeHead(200)
      response.on('error', () => undefined)
      const more = () => {
        while (!response.destroyed && response.write(huge));
        response.once('drain', more)
      }
      more()
    },
  }
  const recorded = recordLog()
  const { keystone, validate } = await scene(t, { requestTimeoutSeconds: 1.2 }, recorded.log)
  const whole = keystone.validate
  t.ok(await validate('good-before'))
  for (const [what, handler] of Object.entries(cases)) {
    keystone.validate = handler
    const started = performance.now()
    await awayFor(t, validate(`good-${what.replaceAll(' ', '-')}`), what)
    t.ok(performance.now() - started < 10_000, 'each answer comes in time')
    t.ok(await validate('good-before'), 'cached tokens stay valid')
  }
  keystone.validate = whole
  t.ok(await validate('good-silence'), 'failures are not cached')
  t.notMatch(recorded.text(), /good-|own-|krater-pw/, 'the log contains no token and no password')
  t.match(recorded.text(), /Give that user the role service/)
  t.match(recorded.text(), /sent more than 4194304 bytes/)
  t.match(recorded.text(), /Keystone validates tokens again/)
})

t.test('a broken connection is retried', async t => {
  const { keystone, validate } = await scene(t)
  const whole = keystone.validate
  let failures = 2
  keystone.validate = (request, response, body) => {
    failures--
    if (failures < 0) return whole(request, response, body)
    return request.socket.destroy()
  }
  t.ok(await validate('good'))
  t.equal(keystone.asked.validate, 3)
})

t.test('while Keystone is unavailable, cached tokens work and others get 503 at once; then all work again', async t => {
  const { keystone, validate } = await scene(t)
  t.ok(await validate('good-1'))
  await keystone.stop()
  t.ok(await validate('good-1'))
  await awayFor(t, validate('good-2'), 'away')
  const waits: number[] = []
  for (let at = 0; at < 5; at++) {
    const asked = performance.now()
    await awayFor(t, validate(`good-y${at}`), 'at once')
    waits.push(performance.now() - asked)
  }
  t.ok(Math.min(...waits) < 350, 'later requests are not delayed: the pauses between retries alone take 700 ms')
  await Promise.all(Array.from({ length: 300 }, (_, at) => awayFor(t, validate(`good-x${at}`), 'at once')))
  await keystone.start()
  await delay(500)
  t.ok(await validate('good-2'))
})

t.test('at most 16 validations run at once and 512 wait; the rest get 503', async t => {
  const { keystone, validate } = await scene(t)
  let now = 0
  let most = 0
  const waiting: (() => void)[] = []
  keystone.validate = async (_, response) => {
    now++
    most = Math.max(most, now)
    await new Promise<void>(resolve => waiting.push(resolve))
    now--
    answer(response, 200, tokenDocument())
  }
  let away = 0
  let good = 0
  const asked = Array.from({ length: 1_000 }, (_, at) =>
    validate(`good-${at}`, { place: [`source ${at % 8}`, ''] }).then(
      () => {
        good++
      },
      error => {
        if (isAway(error)) away++
      },
    ),
  )
  while (waiting.length < 16) await delay(5)
  t.equal(away, 1_000 - 16 - 512)
  const drain = setInterval(() => {
    for (const go of waiting.splice(0)) go()
  }, 2)
  await Promise.all(asked)
  clearInterval(drain)
  t.equal(good, 16 + 512)
  t.equal(most, 16)
})

t.test('a flood of tokens from one source delays only that source', async t => {
  const { keystone, validate } = await scene(t)
  const waiting: (() => void)[] = []
  const asked: string[] = []
  keystone.validate = async (request, response) => {
    asked.push(String(request.headers['x-subject-token']))
    await new Promise<void>(resolve => waiting.push(resolve))
    answer(response, 200, tokenDocument())
  }
  const flood = Array.from({ length: 200 }, (_, at) => validate(`bad-${at}`, { place: ['source a', ''] }))
  const settled = Promise.allSettled(flood)
  while (waiting.length < 16) await delay(5)
  const other = validate('good', { place: ['source b', ''] })
  // Validations of the flood that have started must end first.
  for (const go of waiting.splice(0, 13)) go()
  while (!asked.includes('good')) await delay(5)
  t.ok(asked.length <= 16 + 2, `${asked.length} tokens were validated before it`)
  const drain = setInterval(() => {
    for (const go of waiting.splice(0)) go()
  }, 2)
  await Promise.all([other, settled])
  clearInterval(drain)
})

t.test('requests that wait too long for their turn get 503', async t => {
  const { keystone, validate } = await scene(t, { requestTimeoutSeconds: 0.4 })
  keystone.validate = () => undefined
  await Promise.all(Array.from({ length: 40 }, (_, at) => awayFor(t, validate(`good-${at}`), 'slow')))
  t.ok(keystone.asked.validate <= 32, `${keystone.asked.validate} ran, two rounds of sixteen at most`)
})

t.test('TLS to Keystone needs a trusted certificate', async t => {
  const directory = t.testdir({})
  const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')]
  const request = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
  const names = ['-subj', '/CN=keystone', '-addext', 'subjectAltName=IP:127.0.0.1']
  execFileSync('openssl', [...request, ...names, '-keyout', key, '-out', cert], { stdio: 'ignore', timeout: 20_000 })
  const pem = { cert: readFileSync(cert, 'utf8'), key: readFileSync(key, 'utf8') }
  const keystone = await startFakeKeystone(t, pem)
  const under = async (security: ExternalIdentity['security']) => {
    const { validate, close } = validatorAt(keystone.url, { security })
    t.teardown(close)
    return validate('good').catch((error: unknown) => error)
  }
  t.match(await under({ insecure: false, ca: pem.cert }), { user: { id: 'u1' } })
  t.match(await under({ insecure: true }), { user: { id: 'u1' } })
  t.ok(isAway(await under({ insecure: false })))
  t.equal(keystone.asked.login, 2, 'no login reached the untrusted Keystone')

  const text = `identity: {external_url: "https://k", username: u, password: p, ca_file: ${cert}}`
  t.equal(externalIdentity(parseConfiguration(text, {}))?.security.ca, pem.cert)
  t.throws(() => externalIdentity(parseConfiguration(text.replace(cert, '/nowhere'), {})), {
    message: '/nowhere (identity.ca_file) cannot be read (ENOENT).',
  })
  t.throws(
    () => externalIdentity(parseConfiguration(text.replace(cert, key), {})),
    /must be a PEM file with certificates/,
  )
})
