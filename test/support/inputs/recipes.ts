/** A block of shell commands in a page, and the lines that its output must contain, if the page shows them. */
export type Recipe = { title: string; commands: string; output: string | null }

/** The `sh` blocks of a Markdown page, each with the `text` block that follows it. The title is that of the section. */
export function recipesOf(page: string): Recipe[] {
  const recipes: Recipe[] = []
  let title = ''
  for (const [, heading, kind, content = ''] of page.matchAll(/^#+ (.+)$|^```(\w*)[^\n]*\n([\s\S]*?)^```$/gm)) {
    const last = recipes.at(-1)
    if (heading !== undefined) title = heading
    else if (kind === 'sh') recipes.push({ title, commands: content, output: null })
    else if (kind === 'text' && last !== undefined) last.output = content
  }
  return recipes
}
