import t from 'tap'
import {
  and,
  assignments,
  identifier,
  insertion,
  join,
  json,
  or,
  sql,
  unprepared,
} from '../../../controller/database/sql.js'

t.test('a nested fragment keeps its bindings', async t => {
  const inner = sql`b = ${2} OR c = ${'x'}`
  const statement = sql`SELECT a FROM t WHERE a = ${1} AND (${inner}) AND (${inner}) AND d = ANY(${['p', 'q']})`
  t.equal(statement.text, 'SELECT a FROM t WHERE a = $1 AND (b = $2 OR c = $3) AND (b = $4 OR c = $5) AND d = ANY($6)')
  t.same(statement.values, [1, 2, 'x', 2, 'x', ['p', 'q']])
})

t.test('conditions are joined in brackets; none at all are TRUE or FALSE', async t => {
  const conditions = [sql`a = ${1}`, sql`b = ${2} OR c`]
  t.equal(and(conditions).text, '(a = $1) AND (b = $2 OR c)')
  t.equal(or(conditions).text, '(a = $1) OR (b = $2 OR c)')
  t.equal(and([]).text, 'TRUE')
  t.equal(or([]).text, 'FALSE')
  t.throws(() => join([]), TypeError)
})

t.test('identifiers are quoted', async t => {
  t.equal(identifier('m', 'a"b').text, '"m"."a""b"')
})

t.test('columns become SET and VALUES', async t => {
  const set = assignments({ name: 'n', tags: json(['a']), updated_at: sql`now()` })
  t.equal(set.text, '"name" = $1, "tags" = $2, "updated_at" = now()')
  t.same(set.values, ['n', '["a"]'])
  const inserted = insertion([
    { id: 1, at: sql`now()` },
    { id: 2, at: null },
  ])
  t.equal(inserted.text, '("id", "at") VALUES ($1, now()), ($2, $3)')
  t.same(inserted.values, [1, 2, null])
})

t.test('a statement that contains an unprepared fragment is not prepared', async t => {
  const varying = unprepared(sql`a = ${1}`)
  t.equal(sql`SELECT ${sql`b`}`.prepared, true)
  t.equal(sql`SELECT 1 WHERE ${and([sql`TRUE`, varying])}`.prepared, false)
})
