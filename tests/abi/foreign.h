/* Names that other libraries and programs already have, in the words they have them; none may meet one of ours. */
struct request {
    int id;
};
struct event {
    int id;
};
struct window {
    int id;
};
struct plan {
    int id;
};
struct bucket {
    int id;
};
struct type {
    int id;
};
enum result { RESULT_OK };
