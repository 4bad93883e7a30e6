import fc from 'fast-check'
import t from 'tap'
import { OvsdbProtocolError } from '../../../controller/ovsdb/errors.js'
import { createFrameReader } from '../../../controller/ovsdb/frames.js'

/** Cuts a stream at these places. */
function cut(stream: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...new Set([...places.map(place => place % (stream.length + 1)), stream.length])].sort((a, b) => a - b)
  return ends.map((end, index) => stream.subarray(ends[index - 1] ?? 0, end))
}

t.test('objects come out whole, however the stream is cut', async t => {
  const objects = fc.array(fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()), { maxLength: 8 })
  const blanks = fc.constantFrom('', ' ', '\n', '\r\n\t')
  fc.assert(
    fc.property(objects, blanks, fc.array(fc.nat(), { maxLength: 20 }), (sent, blank, places) => {
      const texts = sent.map(object => JSON.stringify(object))
      const read = createFrameReader()
      const got = cut(Buffer.from(texts.map(text => `${text}${blank}`).join('')), places).flatMap(read)
      t.same(got, texts)
    }),
  )
})

t.test('what is no object ends the conversation', async t => {
  for (const text of ['[]', '1', 'null', '{}x', '}', '"{"']) {
    t.throws(() => createFrameReader()(Buffer.from(text)), OvsdbProtocolError, text)
  }
})

t.test('an object has at most so many bytes, in whatever pieces', async t => {
  const read = createFrameReader(100)
  t.same(read(Buffer.from(`{"a":"${'x'.repeat(80)}"}`)).length, 1)
  read(Buffer.from(`{"a":"${'x'.repeat(60)}`))
  t.throws(() => read(Buffer.from('x'.repeat(60))), { message: /more than 100 bytes/ })
})
