import { once } from 'node:events'
import {
  Client,
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceError,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js'
import t from 'tap'
import { aListener, aPool, uuid } from '../../golden/models.js'
import { aLocalMember, serveOptions } from '../../support/clients/options-traffic.js'
import { certificateOf, keepMaterial, root } from '../../support/clients/tls-traffic.js'

/** gRPC from a client to a member, HTTP/2 and TLS on both sides. */

const MEMBER = 'grpc.example.org'
const LISTENER = 'api.example.com'
const PATHS = { double: '/krater.Numbers/Double', count: '/krater.Numbers/Count' }
type Message = { number: number }
const serialize = (message: Message) => Buffer.from(JSON.stringify(message))
const deserialize = (bytes: Buffer) => JSON.parse(bytes.toString()) as Message
const codec = {
  ...{ requestSerialize: serialize, requestDeserialize: deserialize },
  ...{ responseSerialize: serialize, responseDeserialize: deserialize },
}

let cancelled: () => void
const isCancelled = new Promise<void>(resolve => (cancelled = resolve))
const server = new Server()
server.addService(
  {
    double: { path: PATHS.double, requestStream: false, responseStream: false, ...codec },
    count: { path: PATHS.count, requestStream: false, responseStream: true, ...codec },
  },
  {
    double: ({ request, metadata }: ServerUnaryCall<Message, Message>, answer: sendUnaryData<Message>) => {
      if (request.number < 0) return answer({ code: status.OUT_OF_RANGE, details: 'too small' })
      const trailer = new Metadata()
      trailer.set('proto', String(metadata.get('x-forwarded-proto')[0]))
      answer(null, { number: request.number * 2 }, trailer)
    },
    /** Numbers up to the request; for 0, one that is not the last. */
    count: (call: ServerWritableStream<Message, Message>) => {
      call.once('cancelled', () => cancelled())
      const { number: last } = call.request
      if (last === 0) return void call.write({ number: 0 })
      for (let number = 1; number <= last; number++) call.write({ number })
      call.end()
    },
  },
)
const pair = certificateOf([MEMBER])
const keys = [{ private_key: Buffer.from(pair.privateKey), cert_chain: Buffer.from(pair.certificate) }]
const memberPort = await new Promise<number>((resolve, reject) =>
  server.bindAsync('127.0.0.1:0', ServerCredentials.createSsl(null, keys), (error, port) =>
    error === null ? resolve(port) : reject(error),
  ),
)
t.teardown(() => server.forceShutdown())

const kept = keepMaterial()
const listener: Parameters<typeof aListener>[1] = {
  protocol: 'TERMINATED_HTTPS',
  defaultTlsContainerRef: kept.certificate(certificateOf([LISTENER])),
  insertHeaders: { 'X-Forwarded-Proto': 'true' },
  alpnProtocols: ['h2', 'http/1.1'],
}
const poolOf = (number: number, alpnProtocols: ('h2' | 'http/1.1')[]) =>
  aPool(number, {
    ...{ tlsEnabled: true, caTlsContainerRef: kept.authority(root.certificate), alpnProtocols },
    members: [aLocalMember(number, memberPort, { name: MEMBER })],
  })
const { port } = await serveOptions(t, {
  material: kept.material,
  pools: [poolOf(1, ['h2', 'http/1.1']), poolOf(2, ['http/1.1'])],
  listeners: [1, 2].map(number => aListener(number, { ...listener, defaultPoolId: uuid(3, number) })),
})

function clientOf(number: number): Client {
  const client = new Client(`127.0.0.1:${port(number)}`, credentials.createSsl(Buffer.from(root.certificate)), {
    'grpc.ssl_target_name_override': LISTENER,
    'grpc.default_authority': LISTENER,
  })
  t.teardown(() => client.close())
  return client
}
const client = clientOf(1)
const deadline = () => ({ deadline: Date.now() + 10_000 })

type Doubled = { value: number | undefined; error: ServiceError | null; proto: string }

function double(number: number, by = client): Promise<Doubled> {
  return new Promise(resolve => {
    let answered: Omit<Doubled, 'proto'> = { value: undefined, error: null }
    by.makeUnaryRequest(
      PATHS.double,
      serialize,
      deserialize,
      { number },
      new Metadata(),
      deadline(),
      (error, doubled) => {
        answered = { value: doubled?.number, error }
      },
    ).once('status', ({ metadata }) => resolve({ ...answered, proto: String(metadata.get('proto')[0]) }))
  })
}

t.test('unary calls, their errors and their trailers', async t => {
  t.match(await double(21), { value: 42, error: null, proto: 'https' })
  t.match(await double(-1), { value: undefined, error: { code: status.OUT_OF_RANGE, details: 'too small' } })
  const numbers = Array.from({ length: 200 }, (_, number) => number)
  const answers = await Promise.all(numbers.map(number => double(number)))
  t.same(
    answers.map(({ value }) => value),
    numbers.map(number => 2 * number),
  )
})

t.test('a stream of answers, as long as the client listens', async t => {
  const received: number[] = []
  const count = (number: number) =>
    client.makeServerStreamRequest<Message, Message>(PATHS.count, serialize, deserialize, { number }, deadline())
  for await (const { number } of count(20_000)) received.push(number)
  t.equal(received.length, 20_000)
  t.equal(received.at(-1), 20_000)
  const endless = count(0)
  endless.on('error', () => undefined)
  t.same(await once(endless, 'data'), [{ number: 0 }], 'an answer arrives before the stream ends')
  endless.cancel()
  await isCancelled
})

t.test('a pool without h2 speaks HTTP/1.1, which a gRPC member refuses', async t => {
  const { error } = await double(1, clientOf(2))
  t.ok(error !== null && error.code !== status.DEADLINE_EXCEEDED, 'an error at once')
})
